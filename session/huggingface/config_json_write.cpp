// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "session/huggingface/config_json.hpp"
#include "session/huggingface/config_keys.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {
namespace {

// The value at a path, such as rope_scaling.factor. Objects on the way are added.
Json& place(Json& all, const std::string& path) {
  const size_t dot = path.find('.');
  Json& next = all[path.substr(0, dot)];
  return dot == std::string::npos ? next : place(next, path.substr(dot + 1));
}

// True if the path is absent, or null.
bool is_free(const Json& all, const std::string& path) {
  const size_t dot = path.find('.');
  const Json& next = all.get(path.substr(0, dot));
  return dot == std::string::npos ? next.is_null() : is_free(next, path.substr(dot + 1));
}

Json number_json(double number) {
  return number == std::numeric_limits<double>::max() ? infinite_json() : Json(number);
}

// An option's value. A list of whole numbers is one of integers: transformers takes no 1.0 in the place of 1.
Json option_json(const Value& value) {
  const auto* list = std::get_if<std::vector<double>>(&value);
  const auto whole = [](double x) { return x == std::floor(x) && std::abs(x) < 1e15; };
  if (!list) return Json::parse(toml_text(value));  // valid JSON, too
  Json out = Json::array();
  for (const double number : *list) out.push_back(number_json(number));
  if (!std::all_of(list->begin(), list->end(), whole)) return out;
  return std::vector<int64_t>(list->begin(), list->end());
}

}  // namespace

Json write_config_json(const Section& model, const Schema& options, const Pretrained& pretrained,
                       const std::string& dtype, const Json& before) {
  Json all = Json::object();
  const std::set<std::string> ignored(pretrained.ignore.begin(), pretrained.ignore.end());
  for (const auto& [key, value] : before.members())
    if (is_harmless(key) || ignored.count(key)) all[key] = value;
  for (const char* key : {"dtype", "transformers_version", "_name_or_path", "_model_name_or_path", "_commit_hash"})
    all.erase(key);
  for (const Option& option : options) {
    if (option.json.empty() || !model.has(option.key)) continue;
    // A key inside another one, such as rope_scaling.factor, makes no sense with its default.
    const std::string& path = option.json.front();
    if (path.find('.') == std::string::npos || model.given(option.key))
      place(all, path) = option_json(model.settings().at(option.key).value);
  }
  for (const auto& [path, text] : pretrained.write) {
    const Json constant = Json::parse(text);
    if (!constant.contains("product")) {
      place(all, path) = constant;
    } else if (is_free(all, path)) {
      double product = 1;
      for (const Json& key : constant.at("product").list()) product *= model.number(key.text());
      place(all, path) = static_cast<int64_t>(product);
    }
  }
  const char* defaults = family_defaults(pretrained.model_types.front());
  const Json usual = defaults ? Json::parse(defaults) : Json::object();
  for (const auto& [key, value] : usual.members())
    if (!all.contains(key)) all[key] = Json();  // null: absent, it would be this value
  all["architectures"] =
      std::vector<std::string>{pretrained.architectures.empty() ? "" : pretrained.architectures.front()};
  all["model_type"] = pretrained.model_types.front();
  all["torch_dtype"] = dtype;
  return all;
}

}  // namespace eng
