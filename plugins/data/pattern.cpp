// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <new>

#include "failure.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

// PCRE2's \s and \w are not quite Oniguruma's: written out, without the brackets of a class. Outside of a class, and at
// the edges of words, Oniguruma counts six more characters of Latin-1.
constexpr const char* spaces = R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* words =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr const char* latin_words = R"(\xb2\xb3\xb9\xbc-\xbe)";

// Whether PCRE2 knows a script of this name.
bool is_script(const std::string& name) {
  const std::string pattern = "\\p{sc:" + name + "}";
  int code = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                       PCRE2_UTF | PCRE2_UCP, &code, &at, nullptr);
  pcre2_code_free(compiled);
  return compiled != nullptr;
}

std::string translate(const std::string& regex, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw Failure(ENG_UNSUPPORTED, where + ": " + what + " is not supported in a pattern");
  };
  const std::string word = std::string(words) + latin_words;
  std::string out;
  int depth = 0;  // of classes
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\' && i + 1 < regex.size()) {
      const char escaped = regex[++i];
      const bool negated = escaped == 'S' || escaped == 'W';
      if (escaped == 's' || escaped == 'w' || negated) {
        if (negated && depth > 0) refuse(std::string("\\") + escaped + " inside [...]");
        const bool space = escaped == 's' || escaped == 'S';
        const std::string set = space ? spaces : depth > 0 ? words : word;
        out += depth > 0 ? set : (negated ? "[^" : "[") + set + "]";
      } else if ((escaped == 'b' || escaped == 'B') && depth == 0) {
        const std::string in = "[" + word + "]", behind = "(?<=" + in + ")", not_behind = "(?<!" + in + ")";
        const std::string ahead = "(?=" + in + ")", not_ahead = "(?!" + in + ")";
        out += escaped == 'b' ? "(?:" + behind + not_ahead + "|" + not_behind + ahead + ")"
                              : "(?:" + behind + ahead + "|" + not_behind + not_ahead + ")";
      } else if ((escaped == 'p' || escaped == 'P') && i + 1 < regex.size() && regex[i + 1] == '{') {
        // A script's name means the script itself, for PCRE2 also what other scripts share with it.
        const std::size_t first = regex.find_first_not_of('^', i + 2), end = regex.find('}', i + 2);
        if (end == std::string::npos || first >= end) refuse(std::string("\\") + escaped + " without a name");
        const std::string name = regex.substr(first, end - first);
        out += {c, escaped};
        out += regex.substr(i + 1, first - i - 1) + (is_script(name) ? "sc:" : "") + name + "}";
        i = end;
      } else {
        if (std::string_view("hHRXKGCyYOkgN").find(escaped) != std::string_view::npos)
          refuse(std::string("\\") + escaped);
        out += {c, escaped};
      }
      continue;
    }
    if (c == '[' && depth == 0) {
      depth = 1;
      out += c;
      if (i + 1 < regex.size() && regex[i + 1] == '^') out += regex[++i];
      if (i + 1 < regex.size() && regex[i + 1] == ']') out += "\\]", ++i;
      continue;
    }
    if (c == '[' && depth > 0) refuse("a class inside a class");
    if (c == '&' && depth > 0 && i + 1 < regex.size() && regex[i + 1] == '&') refuse("an intersection of classes");
    if (c == ']' && depth > 0) depth = 0;
    if (c == '(' && depth == 0 && i + 1 < regex.size() && regex[i + 1] == '*') refuse("(*VERB)");
    out += c;
  }
  return out;
}

}  // namespace

MatchState::MatchState()
    : data_(pcre2_match_data_create(1, nullptr)),
      stack_(pcre2_jit_stack_create(std::size_t{32} << 10, std::size_t{1} << 20, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  if (stack_ != nullptr) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  pcre2_set_match_limit(context_.get(), 5'000'000);
  pcre2_set_heap_limit(context_.get(), 256u << 10);  // KiB
}

Pattern::Pattern(const std::string& regex, const std::string& where) : where_(where) {
  const std::string translated = translate(regex, where);
  int code = 0;
  PCRE2_SIZE at = 0;
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), flags, &code, &at, nullptr));
  if (code_ == nullptr) {
    PCRE2_UCHAR text[200] = {};
    pcre2_get_error_message(code, text, sizeof(text));
    throw Failure(ENG_INVALID, where + ": the pattern is wrong: " + reinterpret_cast<const char*>(text));
  }
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;  // else it is slower, and right
}

std::string Pattern::literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = static_cast<unsigned char>(c) >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                       (c >= 'A' && c <= 'Z');
    if (c == '\0')
      out += "\\x00";
    else if (plain)
      out += c;
    else
      out += {'\\', c};
  }
  return out;
}

bool Pattern::next(std::string_view text, std::size_t from, const MatchState& state, std::size_t* begin,
                   std::size_t* end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  while (from < text.size()) {
    const int found =
        jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), from, 0, state.data(), state.context())
             : pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data(), state.context());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      PCRE2_UCHAR message[200] = {};
      pcre2_get_error_message(found, message, sizeof(message));
      throw Failure(ENG_INVALID,
                    where_ + ": the pattern cannot be matched on this text: " + reinterpret_cast<const char*>(message));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data());
    if (range[1] > range[0] && range[0] >= from) {
      *begin = range[0];
      *end = range[1];
      return true;
    }
    std::size_t length = 1;
    utf8_decode(text.substr(from), &length);
    from += length;
  }
  return false;
}

}  // namespace text_data
