// SPDX-License-Identifier: Apache-2.0
#include "oniguruma.hpp"

#include <algorithm>

#include "character_class.hpp"
#include "failure.hpp"
#include "oniguruma_translation.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr int deepest = 200;
constexpr uint32_t most_repeats = 65535;  // of PCRE2; Oniguruma has 100,000

// Escapes whose meaning is written in another way, outside of classes.
struct Escape {
  char name;
  const char* text;
  bool repeatable;
};
constexpr Escape escapes[] = {
    {'A', "\\A", false},                                         // the beginning of the text
    {'z', "\\z", false},                                         // its end
    {'Z', "\\Z", false},                                         // its end, or before a newline there
    {'R', "(?>\\r\\n|[\\n-\\r\\x85\\x{2028}\\x{2029}])", true},  // a line break
    {'N', "[^\\n]", true},                                       // `.` without the option m
    {'h', "[0-9A-Fa-f]", true},                                  // a hexadecimal digit; in PCRE2 a space
    {'H', "[^0-9A-Fa-f]", true},
};

struct Control {
  char name;
  char32_t character;
};
constexpr Control controls[] = {{'t', 9}, {'n', 10}, {'v', 11}, {'f', 12}, {'r', 13}, {'a', 7}, {'e', 27}};

// Syntax that PCRE2 has no equal for, or that no pattern of a tokenizer needs.
struct Refused {
  const char *text, *what;
};
constexpr Refused refused_groups[] = {
    {"(?~", "the absent operator (?~"},
    {"(?{", "a callout"},
    {"(?(", "a condition"},
    {"(?'", "(?'name'...)"},
    {"(?P", "(?P...)"},
    {"(?&", "a call of a group"},
    {"(?R", "a call of a group"},
    {"(?|", "(?|...)"},
    {"(*", "(*...), a verb or callout"},
};

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A class of what stands between its brackets; one property needs none.
std::string bracketed(const std::string& items, bool negated) {
  if (items.rfind("\\p{", 0) == 0 && items.find('}') == items.size() - 1)
    return (negated ? "\\P" : "\\p") + items.substr(2);
  return (negated ? "[^" : "[") + items + "]";
}

}  // namespace

using Translation = OnigurumaTranslation;

void Translation::refuse(const std::string& what, std::size_t at) const {
  throw Failure(ENG_UNSUPPORTED,
                where_ + ": " + what + " (at byte " + std::to_string(at) + ") is not supported in a pattern");
}

void Translation::wrong(const std::string& what, std::size_t at) const {
  throw Failure(ENG_INVALID, where_ + ": the pattern is wrong: " + what + " (at byte " + std::to_string(at) + ")");
}

std::string Translation::text() {
  std::string out = alternatives({});
  if (!done()) wrong("a ) that closes nothing", at_);
  return out;
}

std::string Translation::alternatives(Options options) {
  std::string out = branch(options);
  bool empty = empty_;
  while (peek() == '|' && !done()) {
    ++at_;
    folded_ = 0;
    out += "|" + branch(options);
    empty = empty || empty_;
  }
  empty_ = empty;
  return out;
}

// White space and comments, where the option x is on.
bool Translation::skip_ignored(const Options& options) {
  if (has("(?#")) {
    const std::size_t end = regex_.find(')', at_);
    if (end == std::string::npos) wrong("a comment without an end", at_);
    at_ = end + 1;
    return true;
  }
  if (!options.extended || done()) return false;
  if (peek() == '#') {
    at_ = std::min(regex_.find('\n', at_), regex_.size());
    return true;
  }
  if (std::string_view(" \t\n\v\f\r").find(peek()) == std::string_view::npos || peek() == '\0') return false;
  ++at_;
  return true;
}

std::string Translation::branch(Options options) {
  std::string out;
  bool empty = true;
  while (true) {
    while (skip_ignored(options)) {
    }
    if (done() || peek() == '|' || peek() == ')') {
      empty_ = empty;
      return out;
    }
    // Options without a colon hold to the end of the group, and so do the branches that follow.
    if (has("(?") && std::string_view("imx-").find(peek(2)) != std::string_view::npos && peek(2) != '\0') {
      const std::size_t begin = at_;
      at_ += 2;
      const Options changed = group_options(options);
      if (peek() == ')') {
        ++at_;
        if (++depth_ > deepest) wrong("groups nest deeper than " + std::to_string(deepest), begin);
        out += inside(options, changed, nullptr) + ")";
        empty_ = empty_ && empty;
        --depth_;
        return out;
      }
      at_ = begin;
    }
    const std::size_t begin = at_;
    Atom next = atom(options);
    while (skip_ignored(options)) {
    }
    const bool repeat = !done() && (std::string_view("*+?").find(peek()) != std::string_view::npos);
    std::string ignored;
    bool fixed = false;
    const std::size_t here = at_;
    const bool counted = !repeat && peek() == '{' && interval(ignored, fixed);
    at_ = here;
    if ((repeat || counted) && !next.repeatable) wrong("a repeat of what has no characters", begin);
    out += repeat || counted ? repeated(next, begin) : next.text;
    empty = empty && next.empty;
  }
}

// Translates the repeats of an atom: one or several, one around the other.
std::string Translation::repeated(Atom& atom, std::size_t begin) {
  for (bool first = true;; first = false) {
    std::string repeat;
    if (!done() && std::string_view("*+?").find(peek()) != std::string_view::npos) {
      repeat = peek();
      ++at_;
      if (peek() == '?' || peek() == '+') repeat += regex_[at_++];  // lazy, possessive
    } else if (bool fixed = false; peek() == '{' && interval(repeat, fixed)) {
      // Oniguruma leaves such a loop early, PCRE2 goes on.
      if (atom.empty) refuse("a counted repeat of what may be nothing", begin);
      // {n}? is another repeat around it, and so is + after any interval.
      if (!fixed && peek() == '?') repeat += regex_[at_++];
    } else {
      return atom.text;
    }
    atom.text = (first ? atom.text : "(?:" + atom.text + ")") + repeat;
    atom.empty = atom.empty || repeat[0] == '*' || repeat[0] == '?' || repeat.rfind("{0", 0) == 0;
  }
}

// {n}, {n,}, {n,m} or {,m}. Anything else is text that begins with a brace.
bool Translation::interval(std::string& out, bool& fixed) {
  const std::size_t begin = at_;
  const auto number = [&](std::string& digits) {
    while (is_digit(peek())) digits += regex_[at_++];
    if (digits.size() > 6 || (!digits.empty() && std::stoul(digits) > most_repeats))
      refuse("a repeat of more than " + std::to_string(most_repeats), begin);
  };
  std::string least, most;
  ++at_;
  number(least);
  const bool comma = peek() == ',';
  if (comma) {
    ++at_;
    number(most);
  }
  if (peek() != '}' || (least.empty() && most.empty())) {
    at_ = begin;
    return false;
  }
  ++at_;
  fixed = !comma;
  if (comma && !most.empty() && !least.empty() && std::stoul(least) > std::stoul(most))
    refuse("an interval whose first number is the larger one", begin);
  out = "{" + (least.empty() ? "0" : least) + (comma ? "," + most : "") + "}";
  return true;
}

Translation::Atom Translation::atom(const Options& options) {
  const std::size_t begin = at_;
  std::string ignored;
  bool fixed = false;
  switch (peek()) {
    case '(':
      return group(options);
    case '[': {
      folded_ = 0;
      return {class_pattern(read_class(options))};
    }
    case '.':
      ++at_;
      folded_ = 0;
      return {options.dot_all ? "(?s:.)" : "."};
    case '^':
    case '$':
      ++at_;
      return {std::string(1, regex_[begin]), false, true};  // of lines, by PCRE2_MULTILINE
    case '*':
    case '+':
    case '?':
      wrong("a repeat of nothing", begin);
    case '{':
      if (interval(ignored, fixed)) wrong("a repeat of nothing", begin);
      break;
    case '\\':
      ++at_;
      if (done()) wrong("it ends in a backslash", begin);
      return escape(options);
    default:
      break;
  }
  return {literal(character(), options)};
}

// Reads the options up to `:` or `)`.
Translation::Options Translation::group_options(Options options) {
  bool on = true;
  for (; peek() != ':' && peek() != ')'; ++at_) {
    if (done()) wrong("a group without an end", at_);
    if (peek() == '-')
      on = false;
    else if (peek() == 'i')
      options.ignore_case = on;
    else if (peek() == 'm')
      options.dot_all = on;  // Ruby's m is what others call s
    else if (peek() == 'x')
      options.extended = on;
    else
      refuse(std::string("the option (?") + peek() + ")", at_);
  }
  return options;
}

// The rest of a group, without the closing bracket. `open` is NULL where options begin it.
std::string Translation::inside(const Options& outer, const Options& options, const char* open) {
  const std::string begin = open                                       ? open
                            : outer.ignore_case == options.ignore_case ? "(?:"
                            : options.ignore_case                      ? "(?i:"
                                                                       : "(?-i:";
  return begin + alternatives(options);
}

Translation::Atom Translation::group(const Options& options) {
  const std::size_t begin = at_;
  for (const Refused& r : refused_groups)
    if (has(r.text)) refuse(r.what, begin);
  if (++depth_ > deepest) wrong("groups nest deeper than " + std::to_string(deepest), begin);
  struct Opening {
    const char* text;
    bool repeatable;
  };
  constexpr Opening openings[] = {{"(?:", true},  {"(?>", true},   {"(?=", false},
                                  {"(?!", false}, {"(?<=", false}, {"(?<!", false}};
  const Opening* opening = nullptr;
  for (const Opening& o : openings)
    if (has(o.text)) opening = &o;
  Options changed = options;
  const char* open = opening ? opening->text : nullptr;
  if (opening) {
    at_ += std::string_view(open).size();
  } else if (has("(?<")) {  // the name of a group that nothing refers to
    at_ = regex_.find('>', at_);
    if (at_ == std::string::npos) at_ = begin, wrong("a name without an end", begin);
    ++at_;
    open = "(?:";
  } else if (has("(?")) {
    at_ += 2;
    changed = group_options(options);
    ++at_;
  } else {
    ++at_;
    open = "(?:";
  }
  const bool behind = opening && opening->text[2] == '<';
  if (behind && behind_) refuse("a look-behind inside a look-behind", begin);
  behind_ = behind_ || behind;
  Atom out{inside(options, changed, open) + ")", !opening || opening->repeatable};
  if (behind) behind_ = false;
  out.empty = !out.repeatable || empty_;
  if (peek() != ')' || done()) wrong("a group without an end", begin);
  ++at_;
  --depth_;
  return out;
}

// at_ is behind the backslash.
Translation::Atom Translation::escape(const Options& options) {
  const std::size_t begin = at_ - 1;
  const char name = peek();
  for (const Escape& e : escapes) {
    if (e.name != name) continue;
    ++at_;
    if (e.repeatable) folded_ = 0;
    return {e.text, e.repeatable, !e.repeatable};
  }
  if (name == 'b' || name == 'B') {
    ++at_;
    const std::string in = "[" + words(false) + "]", behind = "(?<=" + in + ")", not_behind = "(?<!" + in + ")";
    const std::string ahead = "(?=" + in + ")", not_ahead = "(?!" + in + ")";
    return {name == 'b' ? "(?:" + behind + not_ahead + "|" + not_behind + ahead + ")"
                        : "(?:" + behind + ahead + "|" + not_behind + not_ahead + ")",
            false, true};
  }
  if (name == 'p' || name == 'P') {
    const std::string text = property_name(begin);
    const bool negated = (name == 'P') != (text[0] == '^');
    for (const char* cased : {"Lu", "Ll", "Lt"})  // other versions of PCRE2 take them as one
      if (options.ignore_case && text.substr(negated == (name == 'P') ? 0 : 1) == cased)
        refuse(std::string("\\p{") + cased + "} where case is ignored", begin);
    folded_ = 0;
    return {bracketed(property(text.substr(text[0] == '^' ? 1 : 0), false), negated)};
  }
  if (std::string_view("sSwWdD").find(name) != std::string_view::npos) {
    ++at_;
    folded_ = 0;
    const bool word = name == 'w' || name == 'W';
    const char* const of = name == 's' || name == 'S' ? "Space" : "Nd";
    return {bracketed(word ? words(false) : property(of, false), name < 'a')};
  }
  const auto plain = plain_escape();
  if (!plain) {
    const bool number = name >= '1' && name <= '9';
    refuse(std::string("\\") + name + (number || name == 'k' ? ", a back-reference," : ""), begin);
  }
  return {literal(*plain, options)};
}

std::optional<char32_t> Translation::plain_escape() {
  const std::size_t begin = at_ - 1;
  const char name = peek();
  for (const Control& c : controls)
    if (c.name == name) return ++at_, c.character;
  if (name == 'x' && peek(1) == '{') {
    at_ += 2;
    const char32_t c = hexadecimal(8, begin);
    if (peek() != '}') refuse("\\x{...}", begin);
    ++at_;
    return c;
  }
  if (name == 'x' || name == 'u') {
    ++at_;
    const std::size_t digits = at_;
    const char32_t c = hexadecimal(name == 'x' ? 2 : 4, begin);
    if (name == 'u' && at_ != digits + 4) refuse("\\u without four digits", begin);
    if (name == 'x' && c >= 0x80) refuse("\\x with a byte that is no character", begin);
    return c;
  }
  if (name == '0') {
    char32_t c = 0;
    for (int i = 0; i < 3 && peek() >= '0' && peek() <= '7'; ++i)
      c = c * 8 + static_cast<char32_t>(regex_[at_++] - '0');
    return c;
  }
  if (is_alphanumeric(name) || done()) return std::nullopt;
  return character();
}

char32_t Translation::hexadecimal(std::size_t most, std::size_t begin) {
  char32_t c = 0;
  std::size_t digits = 0;
  for (; digits < most; ++digits, ++at_) {
    const char d = peek();
    const int value = is_digit(d)            ? d - '0'
                      : d >= 'a' && d <= 'f' ? d - 'a' + 10
                      : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                             : -1;
    if (value < 0) break;
    c = c * 16 + static_cast<char32_t>(value);
  }
  if (digits == 0) refuse("an escape without digits", begin);
  if (c > last_character || (c >= 0xd800 && c < 0xe000)) refuse("a character that does not exist", begin);
  return c;
}

char32_t Translation::character() {
  std::size_t length = 0;
  const char32_t c = utf8_decode(std::string_view(regex_).substr(at_), &length);
  at_ += length;
  return c;
}

std::string Translation::literal(char32_t c, const Options& options) {
  if (options.ignore_case) {
    const char32_t lower = c >= 'A' && c <= 'Z' ? c + 32 : c;
    // Characters of other scripts, and two letters that one character stands for, such as the long s with a t.
    if (c >= 0x80) {
      const std::string_view category = unicode_category(c);
      for (const char* cased : {"Lu", "Ll", "Lt", "Lm", "Mn", "Nl", "So"})
        if (category == cased) refuse("a letter outside of ASCII where case is ignored", at_);
    }
    for (const char* pair : {"ss", "st", "ff", "fi", "fl"})
      if (folded_ == static_cast<char32_t>(pair[0]) && lower == static_cast<char32_t>(pair[1]))
        refuse(std::string(pair) + " where case is ignored, which one character can stand for,", at_);
    folded_ = lower;
  }
  if (c >= 0x80 || (c < 0x80 && is_alphanumeric(static_cast<char>(c)))) {
    std::string out;
    utf8_append(out, c);
    return out;
  }
  if (c < 0x20 || c == 0x7f) return class_text({{c, c}});
  return c == ' ' ? " " : std::string("\\") + static_cast<char>(c);
}

TranslatedPattern translate_oniguruma(const std::string& regex, const std::string& where, bool exact) {
  Translation translation(regex, where, exact);
  std::string text = translation.text();
  return {std::move(text), translation.disputed(), translation.empty()};
}

}  // namespace text_data
