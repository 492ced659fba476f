// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "session/huggingface/config_json.hpp"

namespace eng {
namespace {

using Json = nlohmann::json;

Json::json_pointer pointer(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return Json::json_pointer("/" + path);
}

}  // namespace

nlohmann::json write_config_json(const Section& model, const Schema& options, const Pretrained& pretrained,
                                 const std::string& dtype, const nlohmann::json& before) {
  Json all = Json::object();
  const std::set<std::string> ignored(pretrained.ignore.begin(), pretrained.ignore.end());
  for (const auto& [key, value] : before.items())
    if (is_harmless(key) || ignored.count(key)) all[key] = value;
  for (const char* key : {"dtype", "transformers_version", "_name_or_path", "_model_name_or_path", "_commit_hash"})
    all.erase(key);
  for (const Option& option : options) {
    if (option.json.empty() || !model.has(option.key)) continue;
    // A key inside another one, such as rope_scaling.factor, makes no sense with its default.
    const std::string& path = option.json.front();
    if (path.find('.') == std::string::npos || model.given(option.key))
      all[pointer(path)] = Json::parse(toml_text(model.settings().at(option.key).value));  // this TOML is valid JSON
  }
  for (const auto& [path, text] : pretrained.write) {
    const Json constant = Json::parse(text);
    if (!constant.contains("product")) {
      all[pointer(path)] = constant;
    } else if (all.value(pointer(path), Json()).is_null()) {
      double product = 1;
      for (const Json& key : constant["product"]) product *= model.number(key);
      all[pointer(path)] = static_cast<int64_t>(product);
    }
  }
  all["architectures"] =
      std::vector<std::string>{pretrained.architectures.empty() ? "" : pretrained.architectures.front()};
  all["model_type"] = pretrained.model_type;
  all["torch_dtype"] = dtype;
  return all;
}

}  // namespace eng
