// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <algorithm>
#include <new>

#include "character_class.hpp"
#include "failure.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

// PCRE2's \s and \w differ from Oniguruma's, so Oniguruma's are written out here, without the brackets of a class.
// Outside a class, and at the edges of words, Oniguruma counts six more characters of Latin-1.
constexpr const char* spaces = R"(\t-\r\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* more_words = R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr const char* latin_words = R"(\xb2\xb3\xb9\xbc-\xbe)";

// Translates a pattern of Oniguruma's syntax to PCRE2's.
class Translation {
 public:
  Translation(const std::string& regex, const std::string& where, bool exact)
      : regex_(regex), where_(where), exact_(exact) {}
  std::string text();
  const std::vector<CharacterRange>& disputed() const { return disputed_; }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Failure(ENG_UNSUPPORTED, where_ + ": " + what + " is not supported in a pattern");
  }
  // The text between the brackets of a class that matches \p{name}, or \P{name}.
  std::string property(const std::string& name, bool negated) {
    const CharacterClass& known = character_class(name);
    if (!known.differs) return (negated ? "\\P{" : "\\p{") + known.pcre_name + "}";
    disputed_.insert(disputed_.end(), known.disputed.begin(), known.disputed.end());
    if (!exact_ && !known.pcre_name.empty()) return (negated ? "\\P{" : "\\p{") + known.pcre_name + "}";
    if (!negated && !known.pcre_name.empty() && known.only_added)
      return "\\p{" + known.pcre_name + "}" + class_text(known.disputed);
    return class_text(negated ? complement(known.ranges) : known.ranges);
  }
  std::string words(bool in_class) {
    std::string out = more_words;
    for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) out += property(name, false);
    return out + (in_class ? "" : latin_words);
  }
  void escape(std::string& out);

  const std::string &regex_, &where_;
  bool exact_;
  std::size_t at_ = 0;
  int depth_ = 0;  // of classes
  std::vector<CharacterRange> disputed_;
};

// regex_[at_] is the character that follows a backslash.
void Translation::escape(std::string& out) {
  const char escaped = regex_[at_];
  const bool negated = escaped == 'S' || escaped == 'W';
  if (escaped == 's' || escaped == 'w' || negated) {
    if (negated && depth_ > 0) refuse(std::string("\\") + escaped + " inside [...]");
    const std::string set = escaped == 's' || escaped == 'S' ? spaces : words(depth_ > 0);
    out += depth_ > 0 ? set : (negated ? "[^" : "[") + set + "]";
  } else if ((escaped == 'b' || escaped == 'B') && depth_ == 0) {
    const std::string in = "[" + words(false) + "]", behind = "(?<=" + in + ")", not_behind = "(?<!" + in + ")";
    const std::string ahead = "(?=" + in + ")", not_ahead = "(?!" + in + ")";
    out += escaped == 'b' ? "(?:" + behind + not_ahead + "|" + not_behind + ahead + ")"
                          : "(?:" + behind + ahead + "|" + not_behind + not_ahead + ")";
  } else if ((escaped == 'p' || escaped == 'P') && at_ + 1 < regex_.size() && regex_[at_ + 1] == '{') {
    const std::size_t first = regex_.find_first_not_of('^', at_ + 2), end = regex_.find('}', at_ + 2);
    if (end == std::string::npos || first >= end) refuse(std::string("\\") + escaped + " without a name");
    const std::string name = regex_.substr(first, end - first);
    const bool inverted = (escaped == 'P') != ((first - at_ - 2) % 2 != 0);
    const std::string set = property(name, inverted && depth_ > 0);
    if (depth_ > 0)
      out += set;
    else if (set.find('}') == set.size() - 1 && set[1] == 'p')
      out += (inverted ? "\\P" : "\\p") + set.substr(2);
    else
      out += (inverted ? "[^" : "[") + set + "]";
    at_ = end;
  } else {
    if (std::string_view("hHRXKGCyYOkgN").find(escaped) != std::string_view::npos) refuse(std::string("\\") + escaped);
    out += {'\\', escaped};
  }
}

std::string Translation::text() {
  std::string out;
  for (at_ = 0; at_ < regex_.size(); ++at_) {
    const char c = regex_[at_];
    const char next = at_ + 1 < regex_.size() ? regex_[at_ + 1] : '\0';
    if (c == '\\' && at_ + 1 < regex_.size()) {
      ++at_;
      escape(out);
      continue;
    }
    if (c == '[' && depth_ == 0) {
      depth_ = 1;
      out += c;
      if (next == '^') out += regex_[++at_];
      if (at_ + 1 < regex_.size() && regex_[at_ + 1] == ']') out += "\\]", ++at_;
      continue;
    }
    if (c == '[' && depth_ > 0) refuse("a class inside a class");
    if (c == '&' && depth_ > 0 && next == '&') refuse("an intersection of classes");
    if (c == ']' && depth_ > 0) depth_ = 0;
    if (c == '(' && depth_ == 0 && next == '*') refuse("(*VERB)");
    out += c;
  }
  return out;
}

// Whether the sorted list contains the character.
bool in_ranges(const std::vector<CharacterRange>& ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t x, const CharacterRange& r) { return x < r.first; });
  return after != ranges.begin() && c <= (after - 1)->last;
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
  Translation plain(regex, where, false), exact(regex, where, true);
  plain_ = compile(plain.text());
  disputed_ = plain.disputed();
  if (disputed_.empty()) return;
  std::sort(disputed_.begin(), disputed_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  exact_ = compile(exact.text());
  pages_.resize((last_character >> 8) + 1);
  for (const CharacterRange& range : disputed_)
    for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) pages_[page] = true;
}

Pattern::Compiled Pattern::compile(const std::string& translated) const {
  int code = 0;
  PCRE2_SIZE at = 0;
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  Compiled out;
  out.code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), flags, &code, &at, nullptr));
  if (out.code == nullptr) {
    PCRE2_UCHAR text[200] = {};
    pcre2_get_error_message(code, text, sizeof(text));
    throw Failure(ENG_INVALID, where_ + ": the pattern is wrong: " + reinterpret_cast<const char*>(text));
  }
  out.jit = pcre2_jit_compile(out.code.get(), PCRE2_JIT_COMPLETE) ==
            0;  // if this fails, matching is slower but still correct
  return out;
}

bool Pattern::needs_exact(std::string_view text) const {
  if (disputed_.empty()) return false;
  for (std::size_t at = 0, length = 1; at < text.size(); at += length) {
    length = 1;
    if (static_cast<unsigned char>(text[at]) < 0x80) continue;
    const char32_t c = utf8_decode(text.substr(at), &length);
    if (pages_[c >> 8] && in_ranges(disputed_, c)) return true;
  }
  return false;
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

bool Pattern::next(std::string_view text, std::size_t from, bool exact, const MatchState& state, std::size_t* begin,
                   std::size_t* end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const Compiled& use = exact && exact_.code ? exact_ : plain_;
  while (from < text.size()) {
    const int found =
        use.jit ? pcre2_jit_match(use.code.get(), subject, text.size(), from, 0, state.data(), state.context())
                : pcre2_match(use.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, state.data(),
                              state.context());
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
