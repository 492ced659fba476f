// SPDX-License-Identifier: Apache-2.0
// GPT-2's printable character for each byte: its Latin-1 character where that is printable, otherwise one above U+00FF.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "utf8.hpp"

namespace text_data {

struct ByteCharacters {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 0x150> byte_of{};
  ByteCharacters() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      of_byte[b] = plain ? b : next++;
      byte_of[of_byte[b]] = static_cast<int>(b);
    }
  }
  // The bytes that a text of the vocabulary stands for. False if the text has a character that stands for no byte.
  bool bytes(std::string_view text, std::string& out) const {
    out.clear();
    while (!text.empty()) {
      std::size_t length = 1;
      const char32_t c = utf8_decode(text, &length);
      if (c >= byte_of.size() || byte_of[c] < 0) return false;
      out += static_cast<char>(byte_of[c]);
      text.remove_prefix(length);
    }
    return true;
  }
  // The characters of bytes.
  void characters(std::string_view bytes, std::string& out) const {
    out.clear();
    for (const char b : bytes) utf8_append(out, of_byte[static_cast<unsigned char>(b)]);
  }
};

}  // namespace text_data
