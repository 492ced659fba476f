// SPDX-License-Identifier: Apache-2.0
// Characters that a normalisation form of Unicode leaves as they are, and that neither compose with what is before them
// nor change their place: most of a text, which is then not taken apart.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace text_data {

class InertCharacters {
 public:
  // Options of utf8proc: UTF8PROC_STABLE with UTF8PROC_COMPOSE or UTF8PROC_DECOMPOSE, perhaps with UTF8PROC_COMPAT.
  explicit InertCharacters(int options);
  // One that is newer than the normalisers counts.
  bool test(char32_t c) const { return c < inert_.size() && inert_[c]; }
  // The first character at `from` or behind it that is none; the size of the text if there is none.
  std::size_t find_other(std::string_view text, std::size_t from) const;

 private:
  std::vector<bool> inert_;  // of the planes that scripts and ideographs are in; others are rare
};

}  // namespace text_data
