// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <algorithm>
#include <new>

#include "character_class.hpp"
#include "failure.hpp"
#include "oniguruma.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

// True if the sorted list contains the character.
bool in_ranges(const std::vector<CharacterRange>& ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t x, const CharacterRange& r) { return x < r.first; });
  return after != ranges.begin() && c <= (after - 1)->last;
}

}  // namespace

// Oniguruma gives up when it has gone back 10,000,000 times in a match. PCRE2 counts steps forward, too, so that a
// bound that refuses no text of Oniguruma's must be far above that. Compiled, PCRE2 takes less than a second to reach
// this one.
constexpr uint32_t most_steps = 200'000'000;

// Bytes of the stack of compiled patterns. A repeated group takes some dozens for each character that it matches.
constexpr std::size_t least_stack = std::size_t{1} << 20, most_stack = std::size_t{1} << 30, growth = 32;

MatchState::MatchState() : data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), most_steps);
  pcre2_set_heap_limit(context_.get(), most_stack >> 10);  // KiB
  grow();
}

bool MatchState::grow() const {
  const std::size_t size = stack_size_ == 0 ? least_stack : stack_size_ * growth;
  if (size > most_stack) return false;
  pcre2_jit_stack* const larger = pcre2_jit_stack_create(std::size_t{32} << 10, size, nullptr);
  if (larger == nullptr) return false;
  pcre2_jit_stack_assign(context_.get(), nullptr, larger);
  stack_.reset(larger);
  stack_size_ = size;
  return true;
}

Pattern::Pattern(const std::string& regex, const std::string& where) : where_(where) {
  const TranslatedPattern plain = translate_oniguruma(regex, where, false);
  plain_ = compile(plain.text);
  disputed_ = plain.disputed;
  empty_ = plain.empty;
  if (disputed_.empty()) return;
  std::sort(disputed_.begin(), disputed_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  exact_ = compile(translate_oniguruma(regex, where, true).text);
  pages_.resize((last_character >> 8) + 1);
  for (const CharacterRange& range : disputed_)
    for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) pages_[page] = true;
}

Pattern::Compiled Pattern::compile(const std::string& translated) const {
  int code = 0;
  PCRE2_SIZE at = 0;
  // Without two optimisations of PCRE2 10.42 that lose matches: \P{L}+\P{N}k finds none in "1 k", since the first part
  // is made possessive; compiled, (?>\S+?-\w)B misses the first one in "b-b-BB".
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_POSSESS |
                         PCRE2_NO_START_OPTIMIZE;
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // Oniguruma's, whatever PCRE2 was built with
  Compiled out;
  out.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), flags, &code, &at,
                               context.get()));
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

bool Pattern::next(std::string_view text, Position& position, bool exact, const MatchState& state, std::size_t* begin,
                   std::size_t* end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const Compiled& use = exact && exact_.code ? exact_ : plain_;
  while (position.from <= text.size()) {
    const int found =
        use.jit ? pcre2_jit_match(use.code.get(), subject, text.size(), position.from, 0, state.data(), state.context())
                : pcre2_match(use.code.get(), subject, text.size(), position.from, PCRE2_NO_UTF_CHECK, state.data(),
                              state.context());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && state.grow()) continue;
    if (found < 0) {
      PCRE2_UCHAR message[200] = {};
      pcre2_get_error_message(found, message, sizeof(message));
      throw Failure(ENG_INVALID,
                    where_ + ": the pattern cannot be matched on this text: " + reinterpret_cast<const char*>(message));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data());
    if (range[1] > range[0] || range[1] != position.last) {
      *begin = range[0];
      *end = position.from = position.last = range[1];
      return true;
    }
    // Nothing, where the last match ended: the search goes on behind the next character.
    std::size_t length = 1;
    if (position.from < text.size()) utf8_decode(text.substr(position.from), &length);
    position.from += length;
  }
  return false;
}

}  // namespace text_data
