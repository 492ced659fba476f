// SPDX-License-Identifier: Apache-2.0
#include "inert_characters.hpp"

#include <utf8proc.h>

#include <cstdint>

#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr char32_t end_of_planes = 0x30000;

// Some characters compose with the one before them: all are marks, or the later parts of a syllable of Hangul.
bool may_follow(char32_t c) {
  return unicode_category(c)[0] == 'M' || (c >= 0x1160 && c <= 0x11ff) || (c >= 0xd7b0 && c <= 0xd7ff);
}

bool is_inert(char32_t c, utf8proc_option_t options) {
  if (newer_than_normalisers(c)) return true;
  if (may_follow(c) || utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class != 0) return false;
  utf8proc_int32_t parts[32];
  int boundary = 0;
  utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options, &boundary);
  if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) return true;
  if (count < 1 || count > 32 || !(options & UTF8PROC_COMPOSE)) return false;
  const auto first = static_cast<char32_t>(parts[0]);
  if (may_follow(first) || utf8proc_get_property(parts[0])->combining_class != 0) return false;
  count = utf8proc_normalize_utf32(parts, count, options);
  return count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
}

}  // namespace

InertCharacters::InertCharacters(int options) : inert_(end_of_planes) {
  for (char32_t c = 0; c < end_of_planes; ++c)
    inert_[c] = c < 0x80 || ((c < 0xd800 || c >= 0xe000) && is_inert(c, static_cast<utf8proc_option_t>(options)));
}

std::size_t InertCharacters::find_other(std::string_view text, std::size_t from) const {
  for (std::size_t length = 1; from < text.size(); from += length) {
    length = 1;
    if (static_cast<unsigned char>(text[from]) < 0x80) continue;
    if (!test(utf8_decode(text.substr(from), &length))) return from;
  }
  return text.size();
}

}  // namespace text_data
