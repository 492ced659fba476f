// SPDX-License-Identifier: Apache-2.0
// UTF-8: finds invalid bytes and replaces them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace text_data {

// The length of the sequence at text[0], 1 to 4. If it is invalid, *valid is false and the length is that of its
// longest prefix that could have become valid, at least 1 (as Unicode recommends and Python decodes).
inline std::size_t utf8_length(std::string_view text, bool* valid) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  *valid = true;
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  *valid = false;
  if (first < 0xc2 || first > 0xf4) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return i;
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1 && first == 0xe0) low = 0xa0;
    if (i == 1 && first == 0xed) high = 0x9f;
    if (i == 1 && first == 0xf0) low = 0x90;
    if (i == 1 && first == 0xf4) high = 0x8f;
    if (byte(i) < low || byte(i) > high) return i;
  }
  *valid = true;
  return length;
}

// The length of the longest valid prefix.
inline std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= 8) {
      __builtin_memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    bool valid = false;
    const std::size_t length = utf8_length(text.substr(at), &valid);
    if (!valid) return at;
    at += length;
  }
  return at;
}

// Returns `text` itself if it is valid; otherwise a copy in `kept`, with U+FFFD for each invalid part.
inline std::string_view valid_utf8(std::string_view text, std::string& kept) {
  std::size_t good = utf8_prefix(text);
  if (good == text.size()) return text;
  kept.clear();
  while (true) {
    kept.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return kept;
    bool valid = false;
    text.remove_prefix(utf8_length(text, &valid));
    kept.append("\xef\xbf\xbd");
    good = utf8_prefix(text);
  }
}

// The text must be valid.
inline char32_t utf8_decode(std::string_view text, std::size_t* length) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(0);
  *length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  switch (*length) {
    case 1:
      return first;
    case 2:
      return (first & 0x1f) << 6 | (byte(1) & 0x3f);
    case 3:
      return (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    default:
      return (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
}

inline void utf8_append(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xe0 | c >> 12);
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | c >> 18);
    text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

}  // namespace text_data
