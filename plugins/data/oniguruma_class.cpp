// SPDX-License-Identifier: Apache-2.0
// Classes of characters: [...] with classes inside and intersections, \p{...}, \w.
#include <algorithm>
#include <iterator>

#include "character_class.hpp"
#include "failure.hpp"
#include "oniguruma_translation.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

using Ranges = std::vector<CharacterRange>;
using Translation = OnigurumaTranslation;

constexpr char32_t no_character = last_character + 1;

// PCRE2's \s and \w differ from Oniguruma's, so Oniguruma's are written out here. Outside a class, and at the edges of
// words, Oniguruma counts six more characters of Latin-1.
constexpr CharacterRange spaces[] = {{9, 13},          {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                     {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                     {0x205f, 0x205f}, {0x3000, 0x3000}};
constexpr CharacterRange more_words[] = {{0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
constexpr CharacterRange latin_words[] = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
constexpr CharacterRange hexadecimal_digits[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
constexpr CharacterRange ascii[] = {{0, 0x7f}};
constexpr const char* word_categories[] = {"L", "M", "Nd", "Nl", "Pc"};

// Long names of categories, and names of POSIX; compared without case, spaces, '-' and '_'.
struct Name {
  const char *name, *category;
};
constexpr Name class_names[] = {{"letter", "L"},
                                {"lowercaseletter", "Ll"},
                                {"uppercaseletter", "Lu"},
                                {"titlecaseletter", "Lt"},
                                {"modifierletter", "Lm"},
                                {"otherletter", "Lo"},
                                {"mark", "M"},
                                {"nonspacingmark", "Mn"},
                                {"spacingmark", "Mc"},
                                {"enclosingmark", "Me"},
                                {"number", "N"},
                                {"decimalnumber", "Nd"},
                                {"letternumber", "Nl"},
                                {"othernumber", "No"},
                                {"punctuation", "P"},
                                {"connectorpunctuation", "Pc"},
                                {"dashpunctuation", "Pd"},
                                {"openpunctuation", "Ps"},
                                {"closepunctuation", "Pe"},
                                {"initialpunctuation", "Pi"},
                                {"finalpunctuation", "Pf"},
                                {"otherpunctuation", "Po"},
                                {"symbol", "S"},
                                {"mathsymbol", "Sm"},
                                {"currencysymbol", "Sc"},
                                {"modifiersymbol", "Sk"},
                                {"othersymbol", "So"},
                                {"separator", "Z"},
                                {"spaceseparator", "Zs"},
                                {"lineseparator", "Zl"},
                                {"paragraphseparator", "Zp"},
                                {"control", "Cc"},
                                {"format", "Cf"},
                                {"digit", "Nd"},
                                {"cntrl", "Cc"},
                                {"whitespace", "Space"},
                                {"space", "Space"},
                                {"word", "Word"},
                                {"xdigit", "XDigit"},
                                {"ascii", "ASCII"}};

template <std::size_t count>
Ranges list(const CharacterRange (&ranges)[count]) {
  return Ranges(std::begin(ranges), std::end(ranges));
}

void append(Ranges& to, const Ranges& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Sorted, with nothing twice.
Ranges united(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Ranges out;
  for (const CharacterRange& r : ranges) {
    if (!out.empty() && r.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, r.last);
    else
      out.push_back(r);
  }
  return out;
}

Ranges intersection(const Ranges& a, const Ranges& b) {
  Ranges outside = complement(united(a));
  append(outside, complement(united(b)));
  return complement(united(outside));
}

bool beyond_ascii(const Ranges& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [](const CharacterRange& r) { return r.last >= 0x80; });
}

Ranges ranges_of(const std::string& name) {
  if (name == "Space") return list(spaces);
  if (name == "XDigit") return list(hexadecimal_digits);
  if (name == "ASCII") return list(ascii);
  if (name == "Word") {
    Ranges out = list(more_words);
    for (const char* category : word_categories) append(out, character_class(category).ranges);
    return out;
  }
  return character_class(name).ranges;
}

std::string class_character(char32_t c) {
  const bool plain = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  std::string out;
  if (plain)
    utf8_append(out, c);
  else if (c > 0x20 && c != 0x7f)
    out = std::string("\\") + static_cast<char>(c);
  else
    out = class_text({{c, c}});
  return out;
}

}  // namespace

// Reads the property after \p or \P: at_ is at the p. Returns a name that `property` knows, behind ^ if it is inverted.
std::string Translation::property_name(std::size_t begin) {
  const std::string escape = std::string("\\") + regex_[at_++];
  if (peek() != '{') refuse(escape + " without {...}", begin);
  const bool inverted = peek(1) == '^';
  const std::size_t first = at_ + (inverted ? 2 : 1), end = regex_.find('}', first);
  if (end == std::string::npos || first >= end) refuse(escape + " without a name", begin);
  const std::string given = regex_.substr(first, end - first), plain = plain_name(given);
  std::string name;
  for (const Name& n : class_names)
    if (plain == n.name) name = n.category;
  if (name.empty() && unicode_property(given)) name = given;
  if (name.empty()) refuse(escape + "{" + given.substr(0, 40) + "}, which is neither a category nor a script,", begin);
  at_ = end + 1;
  return (inverted ? "^" : "") + name;
}

// The text between the brackets of a class that matches \p{name}, or \P{name}.
std::string Translation::property(const std::string& name, bool negated) {
  for (const char* ours : {"Space", "XDigit", "ASCII", "Word"})
    if (name == ours) return class_text(negated ? complement(united(ranges_of(name))) : ranges_of(name));
  const CharacterClass& known = character_class(name);
  if (!known.differs) return (negated ? "\\P{" : "\\p{") + known.pcre_name + "}";
  disputed_.insert(disputed_.end(), known.disputed.begin(), known.disputed.end());
  if (!exact_ && !known.pcre_name.empty()) return (negated ? "\\P{" : "\\p{") + known.pcre_name + "}";
  if (!negated && !known.pcre_name.empty() && known.only_added)
    return "\\p{" + known.pcre_name + "}" + class_text(known.disputed);
  return class_text(negated ? complement(known.ranges) : known.ranges);
}

std::string Translation::words(bool in_class) {
  std::string out = class_text(list(more_words));
  for (const char* name : word_categories) out += property(name, false);
  return out + (in_class ? "" : class_text(list(latin_words)));
}

// at_ is at the opening bracket.
Translation::Class Translation::read_class(const Options& options) {
  const std::size_t begin = at_++;
  Class out;
  if (++depth_ > 50) wrong("classes nest too deep", begin);
  if (peek() == '^' && !done()) out.negated = true, ++at_;
  read_items(out, options, true);
  while (has("&&")) {
    if (options.ignore_case) refuse("an intersection of classes where case is ignored", at_);
    at_ += 2;
    Class right;
    read_items(right, options, false);
    if (out.ranges.empty() || right.ranges.empty()) refuse("an intersection with nothing", begin);
    out.simple = false;
    const bool other = beyond_ascii(out.ranges) || beyond_ascii(right.ranges);
    out.ranges = intersection(out.ranges, right.ranges);
    if (out.ranges.empty()) refuse("a class without characters", begin);
    // Oniguruma's own count of it is wrong.
    if (out.negated && other && (!beyond_ascii(out.ranges) || !beyond_ascii(complement(united(out.ranges)))))
      refuse("[^...] of an intersection that leaves nothing outside of ASCII", begin);
  }
  if (peek() != ']' || done()) wrong("a class without an end", begin);
  ++at_;
  --depth_;
  return out;
}

// Up to the closing bracket or `&&`. A bracket that comes first is a character.
void Translation::read_items(Class& set, const Options& options, bool first) {
  char32_t before = no_character;  // that may begin a range
  for (; !done() && !has("&&"); first = false) {
    const std::size_t begin = at_;
    if (peek() == ']') {
      if (!first) return;
      if (regex_.find(']', at_ + 1) == std::string::npos) wrong("a class without an end", begin);
      ++at_;
      add(set, ']', ']', options, begin);
      before = ']';
      continue;
    }
    if (has("[:") && regex_.find(":]", at_) != std::string::npos) {
      posix(set, options);
      before = no_character;
      continue;
    }
    if (peek() == '[') {
      if (options.ignore_case) refuse("a class inside a class where case is ignored", begin);
      const Class inner = read_class(options);
      const Ranges inside = inner.negated ? complement(united(inner.ranges)) : inner.ranges;
      if (inside.empty()) refuse("a class without characters", begin);
      set.simple = false;
      append(set.ranges, inside);
      before = no_character;
      continue;
    }
    if (peek() == '\\' && set_escape(set, options)) {
      before = no_character;
      if (peek() == '-' && peek(1) != ']') refuse("a range that begins with a class", begin);
      continue;
    }
    const bool range = peek() == '-' && !first && peek(1) != ']';
    if (range && before == no_character) refuse("a '-' that is neither first nor last", begin);
    if (range) ++at_;
    if (range && (has("&&") || peek() == '[')) refuse("a range that ends in a class", begin);
    if (peek() == '-' && (range || (first && peek(1) == '-'))) refuse("a range from or to '-'", begin);
    const std::size_t here = at_;
    char32_t c = 0;
    if (peek() == '\\') {
      ++at_;
      const bool backspace = peek() == 'b';
      const auto escaped = backspace ? std::optional<char32_t>(8) : plain_escape();
      if (!escaped) refuse(std::string("\\") + peek() + " inside [...]", here);
      at_ += backspace ? 1 : 0;
      c = *escaped;
    } else {
      c = character();
    }
    if (range) {
      if (before > c) wrong("a range whose end is before its beginning", begin);
      add(set, before, c, options, begin);
      before = no_character;
      if (peek() == '-' && peek(1) != ']') refuse("a '-' after a range", at_);
      continue;
    }
    // Written as a range below, if it begins one.
    before = c;
    if (!(peek() == '-' && peek(1) != ']' && peek(1) != '\0')) add(set, c, c, options, begin);
  }
}

// \w, \p{...} and others that stand for several characters. False if at_ is at another escape.
bool Translation::set_escape(Class& set, const Options& options) {
  const std::size_t begin = at_;
  const char name = peek(1);
  if (std::string_view("sSwWdDhHpP").find(name) == std::string_view::npos || name == '\0') return false;
  ++at_;
  std::string of;
  bool negated = name < 'a';
  if (name == 'p' || name == 'P') {
    of = property_name(begin);
    if (of[0] == '^') negated = !negated, of.erase(0, 1);
  } else {
    ++at_;
    const char lower = static_cast<char>(name | 0x20);
    of = lower == 's' ? "Space" : lower == 'w' ? "Word" : lower == 'h' ? "XDigit" : "Nd";
  }
  if (options.ignore_case && (negated || (of != "Nd" && of != "Space" && of != "XDigit")))
    refuse("\\" + std::string(1, name) + " inside [...] where case is ignored", begin);
  add_named(set, of, negated);
  return true;
}

void Translation::posix(Class& set, const Options& options) {
  const std::size_t begin = at_, end = regex_.find(":]", at_);
  const bool negated = peek(2) == '^';
  const std::string name = regex_.substr(at_ + 2 + negated, end - at_ - 2 - negated);
  struct Posix {
    const char *name, *of;
  };
  constexpr Posix known[] = {{"digit", "Nd"},      {"space", "Space"}, {"word", "Word"},
                             {"xdigit", "XDigit"}, {"ascii", "ASCII"}, {"cntrl", "Cc"}};
  for (const Posix& p : known) {
    if (name != p.name) continue;
    if (options.ignore_case && (negated || name == "word" || name == "ascii"))
      refuse("[:" + name + ":] where case is ignored", begin);
    add_named(set, p.of, negated);
    at_ = end + 2;
    return;
  }
  refuse("[:" + name.substr(0, 20) + ":]", begin);
}

void Translation::add(Class& set, char32_t first, char32_t last, const Options& options, std::size_t at) {
  if (options.ignore_case && last >= 0x80) refuse("a character outside of ASCII in [...] where case is ignored", at);
  if (last >= 0xd800 && first < 0xe000) {  // no text has surrogates, and PCRE2 takes none
    if (first < 0xd800) add(set, first, 0xd7ff, options, at);
    if (last >= 0xe000) add(set, 0xe000, last, options, at);
    return;
  }
  set.items += class_character(first);
  if (last > first) set.items += "-" + class_character(last);
  set.ranges.push_back({first, last});
}

void Translation::add_named(Class& set, const std::string& name, bool negated) {
  set.items += name == "Word" && !negated ? words(true) : property(name, negated);
  const Ranges ranges = ranges_of(name);
  append(set.ranges, negated ? complement(united(ranges)) : ranges);
}

std::string Translation::class_pattern(const Class& set) const {
  if (set.simple) return (set.negated ? "[^" : "[") + set.items + "]";
  const Ranges ranges = set.negated ? complement(united(set.ranges)) : united(set.ranges);
  if (ranges.empty()) return "(?!)";
  return "[" + class_text(ranges) + "]";
}

}  // namespace text_data
