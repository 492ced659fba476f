// SPDX-License-Identifier: Apache-2.0
// Any bytes are another trainer's file and launch line, or an eng::Error; what is made of them is a configuration.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "session/config/problems.hpp"
#include "session/convert/convert.hpp"

namespace {

eng::Option option(const char* key, eng::Type type) {
  eng::Option made;
  made.key = key;
  made.type = type;
  return made;
}

const eng::PluginSchema& schema() {
  static const eng::PluginSchema made = [] {
    eng::PluginSchema plugin;
    for (const char* key : {"beta1", "beta2", "eps", "weight_decay", "momentum", "alpha", "dropout"})
      plugin.options.push_back(option(key, eng::Type::number));
    for (const char* key : {"hidden_size", "vocab_size", "rank"})
      plugin.options.push_back(option(key, eng::Type::integer));
    for (const char* key : {"paths", "targets"}) plugin.options.push_back(option(key, eng::Type::strings));
    plugin.options.push_back(option("frozen", eng::Type::string));
    plugin.presets["tiny"] = {{"hidden_size", int64_t{64}}, {"vocab_size", int64_t{512}}};
    return plugin;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  eng::SchemaSource source;
  source.find = [](const std::string&, const std::string&) { return &schema(); };
  source.names = [](const std::string&) {
    return std::vector<std::string>{"adamw", "sgd", "llama", "zero1", "zero2", "none", "fp32", "lora", "preference"};
  };
  // After a zero byte: the launch line. Before it: a file.
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto zero = input.find('\0');
  eng::ForeignRun run{"file", input.substr(0, zero), zero == std::string::npos ? "" : input.substr(zero + 1), {}};
  if (run.text.empty()) run.name.clear();
  run.read = [](const std::string&) { return std::string(R"({"train_batch_size": 8})"); };
  try {
    const eng::Converted made = eng::convert_run(run, source);
    if (made.text.find("# engine check") == std::string::npos) std::abort();
  } catch (const eng::ConfigError& e) {
    // A value may be wrong because the input's is; the text is always TOML.
    for (const eng::Problem& problem : e.problems())
      if (problem.code == std::string_view("E0101")) std::abort();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::usage) std::abort();
  }
  return 0;
}
