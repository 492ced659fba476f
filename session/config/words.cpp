// SPDX-License-Identifier: Apache-2.0
#include "session/config/words.hpp"

#include <algorithm>

namespace eng {

std::string quoted(const Names& names) {
  return fmt::format("`{}`", fmt::join(names, "`, `"));
}

std::string choice_of(const Names& names, const std::string& none) {
  return names.empty() ? none : "available: " + quoted(names);
}

std::string accepts(const Option& option) {
  return describe(option) + (option.help.empty() ? "" : ": " + option.help);
}

std::string keys_line(const std::string& section, const Schema& options) {
  Names keys;
  for (const Option& option : options) keys.push_back(option.key);
  std::sort(keys.begin(), keys.end());
  return fmt::format("[{}] has: {}", section, fmt::join(keys, ", "));
}

std::string typed(const std::string& section, const Option& option, const Value& value) {
  Value fitted = value;
  const bool fits = value.index() && !fit(option, fitted).code;
  return fmt::format("{}.{}{}", section, option.key, fits ? " = " + toml_text(fitted) : "");
}

Names with_key(const SchemaSource& plugins, const std::string& kind, const std::string& key) {
  Names out;
  for (const auto& name : plugins.names(kind))
    if (const auto* other = plugins.find(kind, name); other && find_option(other->options, key)) out.push_back(name);
  return out;
}

}  // namespace eng
