// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, with padding).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace text_data {

// Appends the bytes. False if the text is not base64.
inline bool base64_decode(std::string_view text, std::string& out) {
  const auto value = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (text.size() % 4 != 0) return false;
  for (int padding = 0; padding < 2 && !text.empty() && text.back() == '='; ++padding) text.remove_suffix(1);
  uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const int six = value(c);
    if (six < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(six);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xff);
  }
  return (bits & ((1u << count) - 1)) == 0;  // the bits that are left over
}

}  // namespace text_data
