// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json, as an index of weights, and as the beginning of a file: read, or refused with an Error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/text.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/huggingface/tensors.hpp"
#include "session/plugins/pretrained.hpp"

namespace {

const eng::PluginSchema& schema() {
  static const eng::PluginSchema made = [] {
    eng::PluginSchema plugin;
    for (const auto type : {eng::Type::boolean, eng::Type::integer, eng::Type::number, eng::Type::string,
                            eng::Type::strings, eng::Type::numbers}) {
      eng::Option option;
      option.key = "k" + std::to_string(static_cast<int>(type));
      option.type = type;
      option.json = {option.key, "in." + option.key};
      plugin.options.push_back(option);
    }
    eng::Pretrained pretrained;
    pretrained.model_types = {"m"};
    pretrained.recognise = {"in"};
    pretrained.fixed = {{"f", {"0.0", "[]"}}};
    plugin.pretrained = std::make_shared<const eng::Pretrained>(pretrained);
    return plugin;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  eng::SchemaSource source;
  source.find = [](const std::string&, const std::string&) { return &schema(); };
  source.names = [](const std::string&) { return std::vector<std::string>{"m"}; };
  try {
    const auto read = eng::model_of_config_json(eng::parse_config_json(text, "fuzz"), "fuzz", "", source);
    // A configuration that was understood can be written, and is understood again.
    eng::Section section("model", read.settings);
    eng::Schema there;
    for (const auto& option : schema().options)
      if (read.settings.count(option.key)) there.push_back(option);
    const auto json = eng::write_config_json(section, there, *schema().pretrained, "float32", eng::Json::object());
    const auto again = eng::model_of_config_json(eng::parse_config_json(json.dump(), "again"), "again", "", source);
    for (const auto& [key, setting] : read.settings)
      if (again.settings.at(key).value != setting.value) std::abort();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::usage) std::abort();
  }
  try {
    for (const auto& [name, file] : eng::parse_weights_index(text, "fuzz"))
      if (file.empty() || file.find('/') != std::string::npos || file[0] == '.') std::abort();
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::checkpoint) std::abort();
  }
  for (const auto wanted :
       {eng::ModelFile::json, eng::ModelFile::safetensors, eng::ModelFile::torch, eng::ModelFile::tokenizer}) {
    const auto found = eng::recognise(std::string_view(text).substr(0, 512), size, wanted);
    if (found && (found->what.empty() || found->what != eng::printable(found->what, 1000))) std::abort();
  }
  return 0;
}
