// SPDX-License-Identifier: Apache-2.0
// A class of characters, such as \p{L}: once by our own tables and once by those of the installed PCRE2.
#pragma once

#include <string>
#include <vector>

#include "unicode.hpp"

namespace text_data {

struct CharacterClass {
  std::string pcre_name;                 // what PCRE2 calls it; empty: it has no such class
  bool differs = false;                  // the tables do not agree; false too where only PCRE2 knows the name
  bool only_added = false;               // PCRE2's class lies within ours
  std::vector<CharacterRange> ranges;    // ours
  std::vector<CharacterRange> disputed;  // in one and not in the other
};

// Finds a class by the name in \p{NAME}. It lives as long as the process. Any thread may call this.
const CharacterClass& character_class(const std::string& name);

// The ranges as they are written between the brackets of a class of PCRE2's.
std::string class_text(const std::vector<CharacterRange>& ranges);
std::vector<CharacterRange> complement(const std::vector<CharacterRange>& ranges);

}  // namespace text_data
