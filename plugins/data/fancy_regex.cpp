// SPDX-License-Identifier: Apache-2.0
#include "fancy_regex.hpp"

#include <cstring>
#include <string_view>
#include <vector>

#include "failure.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

constexpr const char* groups[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
// Two letters that are one character in another case, such as U+00DF for ss: Oniguruma takes it for them, fancy-regex
// does not.
constexpr const char* folded[] = {"ss", "ff", "fi", "fl", "st"};

class Translator {
 public:
  Translator(const std::string& regex, const std::string& where) : in_(regex), where_(where) {}

  std::string translate() {
    if (utf8_prefix(in_) != in_.size()) refuse("what is no UTF-8");
    while (at_ < in_.size()) step();
    if (!open_.empty()) refuse("a group without its end");
    return std::move(out_);
  }

 private:
  static constexpr std::size_t nothing = ~std::size_t{0};

  [[noreturn]] void refuse(const std::string& what) const {
    throw Failure(ENG_UNSUPPORTED, where_ + ": the pattern has " + what + " at byte " + std::to_string(at_) +
                                       ", which is not supported in patterns of tiktoken");
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void take(std::size_t count) {
    out_.append(in_, at_, count);
    at_ += count;
  }

  void step() {
    const char c = in_[at_];
    if (c == '|') {
      atom_ = nothing;
      return take(1);
    }
    if (c == '(') return open();
    if (c == ')') return close();
    if (std::strchr("*+?{", c)) return repeat();
    if (c == '}' || c == ']') refuse(std::string("a `") + c + "` without its beginning");
    atom_ = out_.size();
    if (c == '\\') return escape(false);
    if (c == '[') return character_class();
    if (c == '^' || c == '$') {
      out_ += c == '^' ? "\\A" : "\\z";
      ++at_;
      atom_ = nothing;
      return;
    }
    std::size_t length = 1;
    utf8_decode(std::string_view(in_).substr(at_), &length);
    check_case(c);
    take(length);
  }

  // Remembers the letters of a group without case.
  void check_case(char c) {
    if (caseless_ == 0) return;
    if (static_cast<unsigned char>(c) >= 0x80) refuse("a character outside of ASCII without regard to case");
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const char pair[] = {before_, small, '\0'};
    for (const char* text : folded)
      if (last_literal_ == at_ && std::strcmp(text, pair) == 0)
        refuse(std::string("`") + text + "` without regard to case");
    before_ = small;
    last_literal_ = at_ + 1;
  }

  void open() {
    std::size_t length = 1;
    if (peek(1) == '?') {
      length = 0;
      for (const char* group : groups)
        if (in_.compare(at_, std::strlen(group), group) == 0) length = std::strlen(group);
      if (length == 0) refuse("a group of a kind other than (?:, (?i:, (?=, (?!, (?<=, (?<! and (?>");
    } else if (peek(1) == '*') {
      refuse("`(*`");
    }
    const bool caseless = length == 4 && in_[at_ + 2] == 'i';
    open_.push_back({out_.size(), caseless});
    caseless_ += caseless;
    if (open_.size() > 100) refuse("groups that nest too deep");
    atom_ = nothing;
    take(length);
  }

  void close() {
    if (open_.empty()) refuse("a `)` without its beginning");
    atom_ = open_.back().begin;
    caseless_ -= open_.back().caseless;
    open_.pop_back();
    take(1);
  }

  void repeat() {
    if (atom_ == nothing) refuse("a repetition of nothing");
    if (in_[at_] != '{') {
      std::size_t length = peek(1) == '?' || peek(1) == '+' ? 2 : 1;
      if (std::strchr("*+?{", peek(length)) && peek(length)) refuse("a repetition of a repetition");
      take(length);
      atom_ = nothing;
      return;
    }
    const std::size_t end = in_.find('}', at_);
    const std::string inside = end == std::string::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = inside.find(',');
    if (inside.empty() || inside[0] == ',' || inside.find_first_not_of("0123456789,") != std::string::npos ||
        (comma != std::string::npos && inside.find(',', comma + 1) != std::string::npos))
      refuse("a `{` that is no number of repetitions");
    const std::size_t length = end + 1 - at_;
    const char mode = peek(length);
    if (mode == '?' && comma == std::string::npos) refuse("`{n}?`");
    if (mode == '*' || mode == '{') refuse("a repetition of a repetition");
    take(length);
    if (mode == '?') take(1);
    if (mode == '+') {  // in Oniguruma it would repeat the repetition
      out_.insert(atom_, "(?>");
      out_ += ')';
      ++at_;
    }
    if (peek() && std::strchr("*+?{", peek())) refuse("a repetition of a repetition");
    atom_ = nothing;
  }

  void escape(bool in_class) {
    const char name = peek(1);
    if (name == 'p' || name == 'P') {
      if (peek(2) != '{') {
        if (!peek(2) || !std::strchr("LMNPSZC", peek(2))) refuse("a property without braces");
        out_ += {'\\', name, '{', peek(2), '}'};
        at_ += 3;
        return;
      }
      const std::size_t end = in_.find('}', at_);
      if (end == std::string::npos) refuse("a property without its end");
      return take(end + 1 - at_);
    }
    if (name == 'x') return hexadecimal();
    const bool letter = (name >= 'a' && name <= 'z') || (name >= 'A' && name <= 'Z') || (name >= '0' && name <= '9');
    const char* const known = in_class ? "sSdDrntfv" : "sSdDrntfvAz";
    if (name == '\0' || static_cast<unsigned char>(name) >= 0x80 || (letter && !std::strchr(known, name)))
      refuse(std::string("`\\") + (letter ? std::string(1, name) : "") + "`");
    const bool place = name == 'A' || name == 'z';
    take(2);
    if (place) atom_ = nothing;
  }

  // \x41 is a byte in Oniguruma, and a character here.
  void hexadecimal() {
    const char* const digits = "0123456789abcdefABCDEF";
    if (peek(2) == '{') {
      const std::size_t end = in_.find_first_not_of(digits, at_ + 3);
      if (end == std::string::npos || in_[end] != '}' || end == at_ + 3) refuse("`\\x{` without digits or its end");
      return take(end + 1 - at_);
    }
    if (!peek(2) || !peek(3) || !std::strchr(digits, peek(2)) || !std::strchr(digits, peek(3)))
      refuse("`\\x` without two digits");
    out_ += std::string("\\x{") + peek(2) + peek(3) + "}";
    at_ += 4;
  }

  void character_class() {
    take(1);
    if (peek() == '^') take(1);
    if (peek() == ']') refuse("a class that begins with `]`");
    while (peek() != ']') {
      const char c = peek();
      if (c == '\0') refuse("a class without its end");
      if (c == '[') refuse("a class inside of a class");
      if ((c == '&' || c == '-' || c == '~') && peek(1) == c) refuse("a set operation in a class");
      if (caseless_ > 0 && static_cast<unsigned char>(c) >= 0x80)
        refuse("a character outside of ASCII without regard to case");
      if (c == '\\')
        escape(true);
      else
        take(1);
    }
    take(1);
  }

  struct Open {
    std::size_t begin;
    bool caseless;
  };

  const std::string& in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0, atom_ = nothing;  // of `in_`; where the last atom begins in `out_`
  std::vector<Open> open_;
  int caseless_ = 0;
  char before_ = '\0';
  std::size_t last_literal_ = nothing;
};

}  // namespace

std::string translate_fancy_regex(const std::string& regex, const std::string& where) {
  return Translator(regex, where).translate();
}

}  // namespace text_data
