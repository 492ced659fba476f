// SPDX-License-Identifier: Apache-2.0
// JSON with the liberties of Hjson, as DeepSpeed reads its file: comments, commas that may be left out or end a list,
// names and texts without quotes, texts in single quotes.
#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/text.hpp"
#include "session/convert/entries.hpp"

namespace eng::converter {
namespace {

bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

class Hjson {
 public:
  Hjson(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Json read() {
    skip();
    if (peek() != '{') fail("an object begins with {");
    Json out = value(0);
    skip();
    if (at_ < text_.size()) fail("there is text after the last bracket");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& help) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size()));
    throw Error(Exit::usage,
                fmt::format("{}:{}: not valid JSON", printable(name_), 1 + std::count(text_.begin(), end, '\n')), help);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool next_is(const char* word) const { return text_.compare(at_, std::string_view(word).size(), word) == 0; }

  // Blanks and comments.
  void skip() {
    for (;;) {
      while (at_ < text_.size() && blank(text_[at_])) ++at_;
      if (peek() == '#' || next_is("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (next_is("/*")) {
        const auto end = text_.find("*/", at_ + 2);
        if (end == std::string::npos) fail("a comment does not end: */ is missing");
        at_ = end + 2;
      } else {
        return;
      }
    }
  }

  Json value(std::size_t depth) {
    if (depth > deepest) throw Error(Exit::usage, printable(name_) + ": nested too deeply");
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return list(depth);
      case '"':
      case '\'':
        return quoted();
      case '\0':
        fail("the text ends within a value");
      case '}':
      case ']':
      case ',':
      case ':':
        fail("a value is missing");
      default:
        return word();
    }
  }

  Json object(std::size_t depth) {
    Json out = Json::ordered();
    std::set<std::string> seen;
    for (++at_;;) {
      skip();
      if (peek() == '}') return ++at_, out;
      const std::string key = this->key();
      if (!seen.insert(key).second)
        throw Error(Exit::usage, fmt::format("{}: `{}` appears twice", printable(name_), printable(key, 80)));
      skip();
      if (peek() != ':') fail("`:` and a value are missing after the name of a key");
      ++at_;
      skip();
      out[key] = value(depth + 1);
      comma();
    }
  }

  Json list(std::size_t depth) {
    Json out = Json::array();
    for (++at_;;) {
      skip();
      if (peek() == ']') return ++at_, out;
      out.push_back(value(depth + 1));
      comma();
    }
  }

  void comma() {
    skip();
    if (peek() == ',') ++at_;
  }

  std::string key() {
    if (peek() == '"' || peek() == '\'') return quoted().text();
    const std::size_t begin = at_;
    while (at_ < text_.size() && !blank(text_[at_]) && std::string_view(":{}[],").find(text_[at_]) == std::string::npos)
      ++at_;
    if (at_ == begin) fail(peek() ? "the name of a key is missing" : "a closing bracket is missing");
    return text_.substr(begin, at_ - begin);
  }

  Json quoted() {
    const char quote = peek();
    if (next_is("'''")) fail("a text of several lines is not read here: write it in double quotes, with \\n");
    std::string inner;
    const std::size_t begin = at_;
    for (++at_; peek() != quote; ++at_) {
      if (at_ >= text_.size() || text_[at_] == '\n') {
        at_ = begin;
        fail("a text does not end with its quote");
      }
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        inner += text_[at_ + 1] == '\'' ? "'" : text_.substr(at_, 2);
        ++at_;
      } else {
        inner += text_[at_] == '"' ? "\\\"" : std::string(1, text_[at_]);
      }
    }
    ++at_;
    const Json made = Json::parse_or_null("\"" + inner + "\"");
    if (!made.is_string()) at_ = begin, fail("a text has a character or a backslash that JSON does not allow");
    return made;
  }

  // A number, true, false or null, or else a text that ends with its line.
  Json word() {
    const std::size_t begin = at_, line = std::min(text_.find('\n', at_), text_.size());
    for (std::size_t end = begin + 1; end <= line; ++end) {
      const bool over = end == line || std::string_view(",}]#").find(text_[end]) != std::string_view::npos ||
                        text_.compare(end, 2, "//") == 0 || text_.compare(end, 2, "/*") == 0;
      if (!over) continue;
      const std::string so_far = stripped(text_.substr(begin, end - begin));
      refuse_word(so_far);
      const Json made = Json::parse_or_null(so_far);
      const bool literal = made.is_number() || made.is_boolean() || so_far == "null";
      if (!literal && end < line) continue;
      at_ = end;
      if (literal) return made;
      if (so_far.find_first_of(",\"{}[]") != std::string::npos)
        at_ = begin, fail("a text without quotes goes to the end of its line: write quotes around it");
      return so_far;
    }
    fail("a value is missing");
  }

  void refuse_word(const std::string& word) const {
    std::string bare =
        word.substr(word.find_first_not_of("+-") == std::string::npos ? 0 : word.find_first_not_of("+-"));
    if (bare == "NaN" || bare == "nan" || bare == "Infinity" || bare == "inf")
      fail("JSON has no NaN and no Infinity: write a number");
    if (word == "True" || word == "False" || word == "None")
      fail("this looks like Python: JSON has true, false and null");
    const bool number = !bare.empty() && std::isdigit(static_cast<unsigned char>(bare[0])) &&
                        bare.find_first_not_of("0123456789.eE+-_") == std::string::npos;
    if (number && !Json::parse_or_null(word).is_number()) fail("not a number that can be used: " + printable(word, 80));
  }

  static std::string stripped(const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r");
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
  }

  const std::string& text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

Json read_json(const std::string& text, const std::string& name) {
  return Hjson(text, name).read();
}

}  // namespace eng::converter
