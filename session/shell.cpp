// SPDX-License-Identifier: Apache-2.0
#include "session/shell.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace eng {

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("@%+=:,./_-", c);
  });
  if (plain) return word;
  // A terminal would follow control characters, and other bytes it cannot show.
  if (printable(word, word.size()) != word) {
    std::string out = "$'";
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte > 0x7e)
        out += fmt::format("\\x{:02x}", byte);
      else
        out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
    return out + "'";
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string command_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

}  // namespace eng
