// SPDX-License-Identifier: Apache-2.0
#include "session/json.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.hpp"

namespace eng {

void refuse(const std::string& where, const std::string& why) {
  throw Error(Exit::checkpoint, where + ": " + why);
}

nlohmann::json parse_json(std::string_view text, const std::string& where, size_t deepest,
                          const std::function<void(const std::string& key, const nlohmann::json& value)>& look) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys(deepest + 2);
  std::string key;
  const auto each = [&](int depth, Json::parse_event_t event, Json& value) {
    const auto level = static_cast<size_t>(depth);
    if (level > deepest) refuse(where, "nested too deeply");
    if (event == Json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == Json::parse_event_t::key && !keys[level].insert(key = value.get<std::string>()).second)
      refuse(where, fmt::format("`{}` appears twice", key));
    if (event == Json::parse_event_t::value && look) look(key, value);
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), each);
  } catch (const Json::exception&) {
    refuse(where, "is not valid JSON");
  }
}

nlohmann::json parse_strictly(std::string_view text, const std::string& where, const std::string& fraction) {
  return parse_json(text, where, 6, [&](const std::string& key, const nlohmann::json& value) {
    if (!value.is_string() && !value.is_number_unsigned() && key != fraction)
      refuse(where, fmt::format("{} in `{}` is neither a text nor a whole number >= 0", value.dump(), key));
  });
}

}  // namespace eng
