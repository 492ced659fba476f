// SPDX-License-Identifier: Apache-2.0
#include "lexer.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "../utf8.hpp"
#include "text.hpp"
#include "value.hpp"

namespace jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    for (std::size_t at = 0; at < source.size(); ++at) {
      const bool end = source[at] == '\r';
      if (end && source.substr(at + 1, 1) == "\n") ++at;
      text_ += end ? '\n' : source[at];
    }
    if (!text_.empty() && text_.back() == '\n') text_.pop_back();
    for (std::size_t at = 0; at < text_.size(); ++at)
      if (text_[at] == '\n') lines_.push_back(at + 1);
  }

  std::vector<Token> all() {
    while (at_ < text_.size()) outside();
    add(Token::Kind::end, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    const auto [line, column] = place(at);
    throw Error(line, column, what);
  }
  std::pair<int, int> place(std::size_t at) const {
    const auto next = std::upper_bound(lines_.begin(), lines_.end(), at);
    return {static_cast<int>(next - lines_.begin()) + 1,
            static_cast<int>(at - (next == lines_.begin() ? 0 : *(next - 1))) + 1};
  }
  Token& add(Token::Kind kind, std::size_t at, std::string text = "") {
    Token& token = tokens_.emplace_back();
    token.kind = kind, token.text = std::move(text);
    std::tie(token.line, token.column) = place(at);
    return token;
  }
  bool here(std::string_view what) const { return std::string_view(text_).substr(at_, what.size()) == what; }
  // The next byte that is not white space.
  std::size_t after_space(std::size_t at) const {
    while (at < text_.size() && is_space(character_at(text_, at))) at += character_at(text_, at).size();
    return at;
  }
  // Moves to `at`, behind a tag.
  void behind(std::size_t at) {
    line_starts_ = at > 0 && text_[at - 1] == '\n';
    at_ = at;
  }

  // Text up to a tag, and the tag.
  void outside() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) break;
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
    }
    if (tag == std::string::npos || tag + 1 >= text_.size()) {
      add(Token::Kind::data, begin, text_.substr(begin));
      at_ = text_.size();
      return;
    }
    const char kind = text_[tag + 1], sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    put_data(begin, tag, sign, kind != '{');
    behind(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') return comment(tag);
    if (kind == '{') {
      add(Token::Kind::output_begin, tag);
      return inside(tag, "}}", false);
    }
    if (const std::optional<std::size_t> raw = raw_begin()) return verbatim(tag, *raw);
    add(Token::Kind::block_begin, tag);
    inside(tag, "%}", true);
  }

  // Data before a tag: `-` takes all white space, a block takes the blanks before it on its line.
  void put_data(std::size_t begin, std::size_t end, char sign, bool block) {
    std::string_view data = std::string_view(text_).substr(begin, end - begin);
    if (sign == '-') {
      data = stripped(data, false, true);
    } else if (sign != '+' && block) {
      const std::size_t found = data.rfind('\n'), line = found == std::string_view::npos ? 0 : found + 1;
      if ((line > 0 || line_starts_) && stripped(data.substr(line), true, false).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(Token::Kind::data, begin, std::string(data));
  }

  void comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail(tag, "this comment has no end: write #}");
    const char sign = end > at_ ? text_[end - 1] : ' ';
    close(end + 2, sign, true);
  }

  // Behind the end of a tag, whose sign decides about the white space that follows.
  void close(std::size_t at, char sign, bool block) {
    if (sign == '-')
      at = after_space(at);
    else if (sign != '+' && block && at < text_.size() && text_[at] == '\n')
      ++at;
    behind(at);
  }

  // The place where the text of a raw block begins, if `raw` is next.
  std::optional<std::size_t> raw_begin() const {
    std::size_t at = after_space(at_);
    if (text_.compare(at, 3, "raw") != 0) return std::nullopt;
    at = after_space(at + 3);
    if (text_.compare(at, 3, "-%}") == 0) return after_space(at + 3);
    if (text_.compare(at, 2, "%}") == 0) return at + 2;
    return std::nullopt;
  }

  void verbatim(std::size_t tag, std::size_t begin) {
    behind(begin);
    for (std::size_t at = text_.find("{%", begin); at != std::string::npos; at = text_.find("{%", at + 1)) {
      const char sign = at + 2 < text_.size() ? text_[at + 2] : ' ';
      std::size_t end = after_space(at + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (text_.compare(end, 6, "endraw") != 0) continue;
      end = after_space(end + 6);
      const char last = end < text_.size() ? text_[end] : ' ';
      if (last == '-' || last == '+') ++end;
      if (text_.compare(end, 2, "%}") != 0) continue;
      put_data(begin, at, sign, true);
      return close(end + 2, last, true);
    }
    fail(tag, "this raw block has no end: write {% endraw %}");
  }

  // The tokens of a tag, up to its end.
  void inside(std::size_t tag, std::string_view end, bool block) {
    std::string open;  // brackets
    while (true) {
      at_ = after_space(at_);
      if (at_ >= text_.size()) fail(tag, "this tag has no end: write " + std::string(end));
      const std::size_t begin = at_;
      const char c = text_[at_];
      if (open.empty()) {
        const bool sign = (c == '-' || (c == '+' && block)) && text_.compare(at_ + 1, 2, end) == 0;
        if (sign || here(end)) {
          add(block ? Token::Kind::block_end : Token::Kind::output_end, begin);
          return close(at_ + (sign ? 3 : 2), c, block);
        }
      }
      if (is_digit(c)) {
        number();
      } else if (is_letter(c)) {
        while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
        add(Token::Kind::name, begin, text_.substr(begin, at_ - begin));
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        sign(open);
      }
    }
  }

  void sign(std::string& open) {
    constexpr std::string_view two[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view one = "+-/*%~[](){}><=.:|,;";
    std::string found(1, text_[at_]);
    for (const std::string_view each : two)
      if (here(each)) found = each;
    if (found.size() == 1 && one.find(found[0]) == std::string_view::npos)
      fail(at_, "the character `" + std::string(character_at(text_, at_)) + "` has no meaning here");
    if (found == "(" || found == "[" || found == "{") open += found == "(" ? ')' : found == "[" ? ']' : '}';
    if (found == ")" || found == "]" || found == "}") {
      if (open.empty() || open.back() != found[0]) fail(at_, "`" + found + "` closes nothing that is open");
      open.pop_back();
    }
    add(Token::Kind::sign, at_, found);
    at_ += found.size();
  }

  std::size_t digits(std::size_t at) const {
    while (at < text_.size() && (is_digit(text_[at]) || (text_[at] == '_' && is_digit(text_[at - 1])))) ++at;
    return at;
  }

  void number() {
    const std::size_t begin = at_;
    std::size_t end = digits(begin);
    bool real = false;
    const bool part = begin > 0 && text_[begin - 1] == '.';  // a.0.1 has two numbers
    if (!part && end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
      end = digits(end + 1);
      real = true;
    }
    if (!part && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const std::size_t power =
          end + (end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 2 : 1);
      if (power < text_.size() && is_digit(text_[power])) {
        end = digits(power);
        real = true;
      }
    }
    if (end < text_.size() && is_letter(text_[end])) fail(begin, "a number cannot go on with a letter");
    std::string text = text_.substr(begin, end - begin);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Token& token = add(real ? Token::Kind::real : Token::Kind::integer, begin, text);
    const char* const last = text.data() + text.size();
    const auto read =
        real ? std::from_chars(text.data(), last, token.real) : std::from_chars(text.data(), last, token.integer);
    if (read.ec != std::errc() || read.ptr != last) fail(begin, "the number " + text.substr(0, 40) + " is too large");
    if (!real && text.size() > 1 && text[0] == '0' && token.integer != 0) fail(begin, "a number begins with 0");
    at_ = end;
  }

  void string() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\')
        out += text_[at_++];
      else
        escape(out);
    }
    if (at_ >= text_.size()) fail(begin, "this string has no end");
    ++at_;
    add(Token::Kind::string, begin, std::move(out));
  }

  // As in Python: an escape that has no meaning stays as it is.
  void escape(std::string& out) {
    const std::size_t begin = at_;
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    at_ += 2;
    constexpr std::string_view from = "nrtabfv\\'\"", to = "\n\r\t\a\b\f\v\\'\"";
    if (const std::size_t found = from.find(c); found != std::string_view::npos && c != '\0') {
      out += to[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      const char* const last = text_.data() + std::min(at_ + n, text_.size());
      const auto read = std::from_chars(text_.data() + at_, last, code, 16);
      const bool whole = read.ptr == text_.data() + at_ + n && read.ec == std::errc();
      if (!whole || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail(begin, "this escape is no character");
      text_data::utf8_append(out, code);
      at_ += n;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
        code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      text_data::utf8_append(out, code);
    } else if (c == 'N') {
      fail(begin, "characters by name are not supported in a template");
    } else if (c != '\n') {
      out += '\\';
      at_ = begin + 1;
    }
  }

  std::string text_;
  std::vector<std::size_t> lines_;  // where the second line and the others begin
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  // nothing but text that was taken stands before `at_` on its line
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(source).all();
}

}  // namespace jinja
