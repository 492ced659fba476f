// SPDX-License-Identifier: Apache-2.0
// The translator itself: groups, repeats and escapes in oniguruma.cpp, classes of characters in oniguruma_class.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.hpp"

namespace text_data {

class OnigurumaTranslation {
 public:
  OnigurumaTranslation(const std::string& regex, const std::string& where, bool exact)
      : regex_(regex), where_(where), exact_(exact) {}
  std::string text();
  const std::vector<CharacterRange>& disputed() const { return disputed_; }
  bool empty() const { return empty_; }

 private:
  struct Options {
    bool ignore_case = false, dot_all = false, extended = false;
  };
  struct Atom {
    std::string text;
    bool repeatable = true;
    bool empty = false;  // it may match nothing
  };
  // A class between brackets. `items` is what PCRE2 may have between its brackets; where it has no such thing (classes
  // inside classes, intersections), `items` is not used, and the characters are counted.
  struct Class {
    std::string items;
    bool simple = true, negated = false;
    std::vector<CharacterRange> ranges;  // without regard to `negated`
  };

  [[noreturn]] void refuse(const std::string& what, std::size_t at) const;
  [[noreturn]] void wrong(const std::string& what, std::size_t at) const;
  bool has(std::string_view text) const { return std::string_view(regex_).substr(at_, text.size()) == text; }
  bool done() const { return at_ == regex_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < regex_.size() ? regex_[at_ + ahead] : '\0'; }

  std::string alternatives(Options options);
  std::string branch(Options options);
  bool skip_ignored(const Options& options);
  Atom atom(const Options& options);
  Atom group(const Options& options);
  std::string inside(const Options& outer, const Options& options, const char* open);
  Options group_options(Options options);
  std::string repeated(Atom& atom, std::size_t begin);
  bool interval(std::string& out, bool& fixed);
  Atom escape(const Options& options);
  // A single character: at_ is at it, or behind the backslash of its escape. Nothing if it is no single character.
  std::optional<char32_t> plain_escape();
  char32_t character();
  char32_t hexadecimal(std::size_t most, std::size_t begin);
  std::string literal(char32_t c, const Options& options);

  Class read_class(const Options& options);
  void read_items(Class& set, const Options& options, bool first);
  bool set_escape(Class& set, const Options& options);
  void posix(Class& set, const Options& options);
  void add(Class& set, char32_t first, char32_t last, const Options& options, std::size_t at);
  void add_named(Class& set, const std::string& name, bool negated);
  std::string class_pattern(const Class& set) const;
  std::string property_name(std::size_t begin);
  std::string property(const std::string& name, bool negated);
  std::string words(bool in_class);

  const std::string &regex_, &where_;
  bool exact_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool behind_ = false;  // in a look-behind
  bool empty_ = false;   // whether the alternatives that were read last may match nothing
  char32_t folded_ = 0;  // the letter before, where case is ignored: two letters may be one elsewhere
  std::vector<CharacterRange> disputed_;
};

}  // namespace text_data
