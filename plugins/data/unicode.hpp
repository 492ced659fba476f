// SPDX-License-Identifier: Apache-2.0
// Characters by general category and by script. The tables are our own, because the ids of a tokenizer must not depend
// on the Unicode version of the installed libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

inline constexpr const char* unicode_version = "16.0.0";  // that of the `tokenizers` library 0.23
inline constexpr char32_t last_character = 0x10ffff;

struct CharacterRange {
  char32_t first, last;
};

// A name of a property without case, spaces, '-' and '_': "Old_Italic", "old italic" -> "olditalic".
std::string plain_name(std::string_view name);
// Sorted ranges of the characters with this property: a general category (L, Lu) or a script (Han), whose name is
// compared by plain_name. Empty if the tables have no such name.
std::optional<std::vector<CharacterRange>> unicode_property(std::string_view name);
// The category, such as "Lu".
std::string_view unicode_category(char32_t c);
// The script, as a place in unicode_script_names.
std::size_t unicode_script(char32_t c);
// True if the character is unassigned in Unicode 9.0, the version of the normalisers of the `tokenizers` library. They
// leave such a character as it is, and nothing before it combines with anything after it.
bool newer_than_normalisers(char32_t c);
// The small letter, as the library's Lowercase knows it. U+0130, which has two characters for one, stays as it is.
char32_t small_letter(char32_t c);

// Each step-th character from `first` to `last` has a small letter at the same distance; `to` is that of the first.
struct LowercaseRun {
  char32_t first, last;
  uint32_t step;
  char32_t to;
};

// Made by tools/unicode-tables.
extern const char* const unicode_category_names[];
extern const uint32_t unicode_categories[];
extern const std::size_t unicode_category_runs;
extern const char* const unicode_script_names[];
extern const std::size_t unicode_script_count;
extern const uint32_t unicode_scripts[];
extern const std::size_t unicode_script_runs;
extern const LowercaseRun unicode_lowercase[];
extern const std::size_t unicode_lowercase_runs;
extern const uint32_t unicode_graphemes[];
extern const std::size_t unicode_grapheme_runs;

}  // namespace text_data
