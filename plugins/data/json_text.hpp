// SPDX-License-Identifier: Apache-2.0
// Reads JSON files that may come from anywhere.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "failure.hpp"

namespace text_data {

// Text from a file in a form fit for messages: short, printable ASCII.
inline std::string printable(std::string text, std::size_t most = 160) {
  if (text.size() > most) text = text.substr(0, most) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text;
}

// The library's text without its own prefix and position.
inline std::string json_reason(const std::string& what) {
  std::size_t at = what.find(", column ");
  at = at == std::string::npos ? std::string::npos : what.find(": ", at);
  return printable(at == std::string::npos ? what : what.substr(at + 2));
}

// Throws Failure(ENG_INVALID) for JSON nested deeper than `deepest`. (A callback of the parser could count the levels,
// but then each value would cost a walk over its neighbours.)
inline void check_json_depth(const std::string& text, const std::string& file, int deepest) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '{' || c == '['))
      ++depth;
    else if (!quoted && (c == '}' || c == ']'))
      --depth;
    if (depth > deepest)
      throw Failure(ENG_INVALID, file + ": nests deeper than " + std::to_string(deepest) + " levels");
  }
}

// Throws Failure(ENG_INVALID) for text that is not JSON, and for JSON nested deeper than any tokenizer needs.
inline nlohmann::json parse_json(const std::string& text, const std::string& file) {
  check_json_depth(text, file, 32);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ENG_INVALID, file + ": not valid JSON: " + printable(error.what()));
  }
}

}  // namespace text_data
