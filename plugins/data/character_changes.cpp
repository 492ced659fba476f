// SPDX-License-Identifier: Apache-2.0
#include "character_changes.hpp"

#include <algorithm>
#include <iterator>

#include "byte_characters.hpp"
#include "normaliser.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

template <std::size_t n>
bool in_ranges(const CharacterRange (&ranges)[n], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const CharacterRange& r) { return c >= r.first && c <= r.last; });
}

// No marks, and no control characters; most of a text in Chinese.
bool common_ideograph(char32_t c) {
  return c >= 0x4e00 && c <= 0x9fcc;
}

bool lowercase(char32_t c, std::string& out) {
  if (c == 0x130) {  // the only one that becomes two
    out += "i\xcc\x87";
    return true;
  }
  const char32_t small = small_letter(c);
  if (small == c) return false;
  utf8_append(out, small);
  return true;
}

// Marks of Unicode 9.0, as the library's StripAccents has them.
bool strip_accents(char32_t c, std::string&) {
  if (c < 0x300 || common_ideograph(c)) return false;
  if (c == 0x1cf2 || c == 0x1cf3) return true;  // letters since
  return unicode_category(c)[0] == 'M' && c != 0x111c9 && !newer_than_normalisers(c);
}

// BertNormalizer has the categories of Unicode 8.0.
bool clean_text(char32_t c, std::string& out) {
  if (c == '\t' || c == '\n' || c == '\r') {
    out += ' ';
    return true;
  }
  if (c == 0 || c == 0xfffd) return true;
  if ((c >= 0x20 && c < 0x7f) || common_ideograph(c)) return false;
  const std::string_view category = unicode_category(c);
  if (category == "Cc" || category == "Co") return true;
  if (category == "Cf") return c != 0x8e2 && !newer_than_normalisers(c);
  if (!is_space(c)) return false;
  out += ' ';
  return true;
}

bool space_ideographs(char32_t c, std::string& out) {
  constexpr CharacterRange ideographs[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0xf900, 0xfaff},
                                           {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                           {0x2f800, 0x2fa1f}};
  if (c < 0x3400 || !in_ranges(ideographs, c)) return false;
  out += ' ';
  utf8_append(out, c);
  out += ' ';
  return true;
}

bool strip_nonspacing(char32_t c, std::string&) {
  if (c < 0x300 || common_ideograph(c)) return false;
  if (c == 0x1734 || c == 0x1171e) return true;  // of another category since
  constexpr CharacterRange newer[] = {{0x8d4, 0x8e1},     {0x1885, 0x1886},   {0x1dfb, 0x1dfb},   {0xa8c5, 0xa8c5},
                                      {0xa9bd, 0xa9bd},   {0x111c9, 0x111c9}, {0x1123e, 0x1123e}, {0x11438, 0x11446},
                                      {0x11c30, 0x11cb6}, {0x1e000, 0x1e02a}, {0x1e944, 0x1e94a}};
  return unicode_category(c) == "Mn" && !newer_than_normalisers(c) && !in_ranges(newer, c);
}

bool nmt(char32_t c, std::string& out) {
  if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f) return true;
  const bool space = c == '\t' || c == '\n' || c == 0xc || c == '\r' || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
  if (space) out += ' ';
  return space;
}

bool byte_level(char32_t c, std::string& out) {
  static const ByteCharacters all;
  if (c >= 0x21 && c <= 0x7e) return false;
  std::string bytes;
  utf8_append(bytes, c);
  for (const char b : bytes) utf8_append(out, all.of_byte[static_cast<unsigned char>(b)]);
  return true;
}

}  // namespace

CharacterChange::CharacterChange(Change change) : change_(change) {
  std::string ignored;
  for (char32_t c = 0; c < 128; ++c) stays_.set(c, !change(c, ignored));
}

bool CharacterChange::apply(std::string_view text, std::string& kept, bool* moved) const {
  kept.clear();
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at, length = 0;
    while (end < text.size() && static_cast<unsigned char>(text[end]) < 128 &&
           stays_[static_cast<unsigned char>(text[end])])
      ++end;
    kept.append(text.substr(at, end - at));
    if (end == text.size()) break;
    const char32_t c = utf8_decode(text.substr(end), &length);
    if (change_(c, kept)) {
      changed = true;
      if (kept.empty()) *moved = true;
    } else {
      kept.append(text.substr(end, length));
    }
    at = end + length;
  }
  return changed;
}

const CharacterChange& lowercase_change() {
  static const CharacterChange out(lowercase);
  return out;
}
const CharacterChange& strip_accents_change() {
  static const CharacterChange out(strip_accents);
  return out;
}
const CharacterChange& clean_text_change() {
  static const CharacterChange out(clean_text);
  return out;
}
const CharacterChange& space_ideographs_change() {
  static const CharacterChange out(space_ideographs);
  return out;
}
const CharacterChange& strip_nonspacing_change() {
  static const CharacterChange out(strip_nonspacing);
  return out;
}
const CharacterChange& nmt_change() {
  static const CharacterChange out(nmt);
  return out;
}
const CharacterChange& byte_level_change() {
  static const CharacterChange out(byte_level);
  return out;
}

}  // namespace text_data
