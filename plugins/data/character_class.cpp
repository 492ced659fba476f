// SPDX-License-Identifier: Apache-2.0
#include "character_class.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "pattern.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr char32_t table_page = 4096;

using ClassCode = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;

ClassCode compile_class(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE at = 0;
  return {pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &at,
                        nullptr),
          pcre2_code_free};
}

// Asks PCRE2 which characters it counts, 4,096 at a time.
std::vector<CharacterRange> ask_pcre(const std::string& name) {
  const ClassCode code = compile_class("\\p{" + name + "}+");
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  if (code == nullptr || data == nullptr) throw std::bad_alloc();
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  std::vector<CharacterRange> out;
  std::string text;
  for (char32_t page = 0; page <= last_character; page += table_page) {
    text.clear();
    std::vector<char32_t> at_byte;  // the character that a byte belongs to
    for (char32_t c = page; c < page + table_page; ++c) {
      if (c >= 0xd800 && c < 0xe000) continue;  // no text has surrogates
      utf8_append(text, c);
      at_byte.resize(text.size(), c);
    }
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    for (std::size_t from = 0; from < text.size();) {
      if (pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), nullptr) < 0) break;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
      const char32_t first = at_byte[range[0]], last = at_byte[range[1] - 1];
      if (!out.empty() && out.back().last + 1 == first)
        out.back().last = last;
      else
        out.push_back({first, last});
      from = range[1];
    }
  }
  return out;
}

// Characters of `a` that are not in `b`.
std::vector<CharacterRange> range_difference(const std::vector<CharacterRange>& a,
                                             const std::vector<CharacterRange>& b) {
  std::vector<CharacterRange> out;
  auto skip = b.begin();
  for (const CharacterRange& range : a) {
    char32_t first = range.first;
    while (skip != b.end() && skip->last < first) ++skip;
    for (auto hole = skip; hole != b.end() && hole->first <= range.last && first <= range.last; ++hole) {
      if (hole->first > first) out.push_back({first, hole->first - 1});
      first = hole->last + 1;
    }
    if (first <= range.last) out.push_back({first, range.last});
  }
  return out;
}

CharacterClass compare_tables(const std::string& name) {
  CharacterClass out;
  // In our tables a script's name means the script itself; PCRE2's class of that name also has characters that other
  // scripts share with it.
  if (compile_class("\\p{sc:" + name + "}"))
    out.pcre_name = "sc:" + name;
  else if (compile_class("\\p{" + name + "}"))
    out.pcre_name = name;
  const auto ours = unicode_property(name);
  if (!ours) {
    if (out.pcre_name.empty()) out.pcre_name = name;  // compiling the pattern will say what is wrong
    return out;
  }
  const std::vector<CharacterRange> surrogates = {{0xd800, 0xdfff}};
  out.ranges = range_difference(*ours, surrogates);
  if (out.pcre_name.empty()) {
    out.differs = true;
    out.disputed = out.ranges;
    return out;
  }
  const std::vector<CharacterRange> theirs = ask_pcre(out.pcre_name);
  const std::vector<CharacterRange> added = range_difference(out.ranges, theirs),
                                    removed = range_difference(theirs, out.ranges);
  out.only_added = removed.empty();
  out.disputed = added;
  out.disputed.insert(out.disputed.end(), removed.begin(), removed.end());
  out.differs = !out.disputed.empty();
  return out;
}

std::string hex_escape(char32_t c) {
  std::string digits;
  do digits.insert(digits.begin(), "0123456789abcdef"[c & 15]);
  while ((c >>= 4) != 0);
  return "\\x{" + digits + "}";
}

}  // namespace

const CharacterClass& character_class(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CharacterClass> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(name);
  if (found == known.end()) found = known.emplace(name, compare_tables(name)).first;
  return found->second;
}

std::string class_text(const std::vector<CharacterRange>& ranges) {
  std::string out;
  for (const CharacterRange& range : ranges)
    out += hex_escape(range.first) + (range.last > range.first ? "-" + hex_escape(range.last) : "");
  return out;
}

std::vector<CharacterRange> complement(const std::vector<CharacterRange>& ranges) {
  std::vector<CharacterRange> out;
  for (const CharacterRange& part : range_difference({{0, last_character}}, ranges))
    for (const CharacterRange& valid : range_difference({part}, {{0xd800, 0xdfff}})) out.push_back(valid);
  return out;
}

}  // namespace text_data
