// SPDX-License-Identifier: Apache-2.0
#include "unicode.hpp"

#include <algorithm>
#include <bitset>

namespace text_data {
namespace {

constexpr uint32_t category_bits = 31, newer_bit = 32;

// The characters of the runs for which `take` returns true. The first character of a run is in the bits above `shift`.
template <class Take>
std::vector<CharacterRange> collect(const uint32_t* table, std::size_t runs, unsigned shift, Take take) {
  std::vector<CharacterRange> out;
  for (std::size_t i = 0; i < runs; ++i) {
    if (!take(table[i] & ((1u << shift) - 1))) continue;
    const char32_t first = table[i] >> shift, last = i + 1 < runs ? (table[i + 1] >> shift) - 1 : last_character;
    if (!out.empty() && out.back().last + 1 == first)
      out.back().last = last;
    else
      out.push_back({first, last});
  }
  return out;
}

uint32_t category_entry(char32_t c) {
  const uint32_t* end = unicode_categories + unicode_category_runs;
  return *(std::upper_bound(unicode_categories, end, c, [](char32_t x, uint32_t row) { return x < row >> 6; }) - 1);
}

}  // namespace

std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::optional<std::vector<CharacterRange>> unicode_property(std::string_view name) {
  const std::string wanted = plain_name(name);
  if (wanted.empty()) return std::nullopt;
  const auto in_category = [&](uint32_t entry) {
    const std::string category = plain_name(unicode_category_names[entry & category_bits]);
    return category.compare(0, wanted.size(), wanted) == 0;
  };
  if (wanted.size() <= 2)
    if (auto found = collect(unicode_categories, unicode_category_runs, 6, in_category); !found.empty()) return found;
  for (std::size_t script = 0; script < unicode_script_count; ++script)
    if (plain_name(unicode_script_names[script]) == wanted)
      return collect(unicode_scripts, unicode_script_runs, 8, [&](uint32_t entry) { return entry == script; });
  return std::nullopt;
}

std::string_view unicode_category(char32_t c) {
  return unicode_category_names[category_entry(c) & category_bits];
}

std::size_t unicode_script(char32_t c) {
  const uint32_t* end = unicode_scripts + unicode_script_runs;
  return *(std::upper_bound(unicode_scripts, end, c, [](char32_t x, uint32_t row) { return x < row >> 8; }) - 1) & 255;
}

bool newer_than_normalisers(char32_t c) {
  static const std::bitset<(last_character >> 8) + 1> pages = [] {  // that have such a character
    std::bitset<(last_character >> 8) + 1> out;
    const auto newer = [](uint32_t entry) { return (entry & newer_bit) != 0; };
    for (const CharacterRange& range : collect(unicode_categories, unicode_category_runs, 6, newer))
      for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) out.set(page);
    return out;
  }();
  return pages.test(c >> 8) && (category_entry(c) & newer_bit) != 0;
}

char32_t small_letter(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  const LowercaseRun* const end = unicode_lowercase + unicode_lowercase_runs;
  const LowercaseRun* const run =
      std::upper_bound(unicode_lowercase, end, c, [](char32_t x, const LowercaseRun& row) { return x < row.first; }) -
      1;
  return c > run->last || (c - run->first) % run->step != 0 ? c : c - run->first + run->to;
}

}  // namespace text_data
