// SPDX-License-Identifier: Apache-2.0
// Texts as Python sees them: characters of UTF-8, white space, case; and values as texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "value.hpp"

namespace jinja {

// The bytes of the character that begins at `at`. A byte that is not UTF-8 counts as a character.
std::string_view character_at(std::string_view text, std::size_t at);
int64_t characters(std::string_view text);
std::vector<std::size_t> character_starts(std::string_view text);  // and the end
bool is_space(std::string_view character);                         // str.isspace()
// Without white space, or without the given characters, at the ends.
std::string_view stripped(std::string_view text, bool left, bool right, const std::string* of = nullptr);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
// The first character in upper case, the rest in lower case.
std::string capitalised(std::string_view text);

// str() and repr(). Throw BadValue for what has no such text in a template.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);

// json.dumps(). `indent` below 0: on one line.
struct JsonStyle {
  int64_t indent = -1;
  bool ascii = false, sorted = false;
  std::string between = ", ", after_key = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace jinja
