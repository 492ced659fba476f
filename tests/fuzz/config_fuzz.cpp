// SPDX-License-Identifier: Apache-2.0
// Any bytes are a configuration or an eng::Error, and a resolved text is a configuration again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "session/config/config_text.hpp"
#include "session/config/foreign.hpp"
#include "session/config/problem_text.hpp"

namespace {

const eng::PluginSchema& schema() {
  static const eng::PluginSchema made = [] {
    eng::PluginSchema plugin;
    for (const auto type : {eng::Type::boolean, eng::Type::integer, eng::Type::number, eng::Type::string,
                            eng::Type::bytes, eng::Type::strings, eng::Type::numbers}) {
      eng::Option option;
      option.key = "k" + std::to_string(static_cast<int>(type));
      option.type = type;
      plugin.options.push_back(option);
    }
    plugin.presets["p"] = {{"k1", int64_t{3}}};
    return plugin;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  eng::SchemaSource source;
  source.find = [](const std::string&, const std::string& name) { return name == "none" ? nullptr : &schema(); };
  source.names = [](const std::string&) { return std::vector<std::string>{"a", "b"}; };
  source.foreign = eng::foreign_name;
  // After a zero byte: an override.
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto zero = input.find('\0');
  std::vector<std::string> overrides;
  if (zero != std::string::npos) overrides.push_back(input.substr(zero + 1));
  std::string resolved;
  try {
    resolved = eng::resolved_text(eng::Config::parse(input.substr(0, zero), "fuzz.toml", "/", overrides, source));
  } catch (const eng::ConfigError& error) {
    if (error.exit() != eng::Exit::usage || eng::tell(error).empty()) std::abort();
    return 0;
  }
  try {
    eng::Config::parse(resolved, "resolved.toml", "/", {}, source);
  } catch (const eng::Error&) {
    std::abort();
  }
  return 0;
}
