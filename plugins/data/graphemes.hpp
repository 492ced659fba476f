// SPDX-License-Identifier: Apache-2.0
// Characters as a reader sees them: a letter with its marks (UAX 29, extended grapheme clusters of Unicode 17).
#pragma once

#include <cstddef>
#include <string_view>

namespace text_data {

// The length in bytes of the cluster at the beginning of a valid UTF-8 text that is not empty.
std::size_t grapheme_length(std::string_view text);

}  // namespace text_data
