// SPDX-License-Identifier: Apache-2.0
// Text that arrives in pieces of bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace eng {

// The number of bytes of `text` that can be shown: all except the start of a UTF-8 character whose rest may still
// arrive. Invalid UTF-8 is shown unchanged.
inline size_t complete(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;  // not the first byte of a character
    const size_t length = byte >= 0xf8 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return back < length ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace eng
