// SPDX-License-Identifier: Apache-2.0
// A regular expression in the syntax of tokenizer.json (Oniguruma's), matched by PCRE2 with the character classes of
// our own tables.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.hpp"

namespace text_data {

// Scratch memory for matching. One per thread.
class MatchState {
 public:
  MatchState();
  pcre2_match_data* data() const { return data_.get(); }
  pcre2_match_context* context() const { return context_.get(); }
  // Gives compiled patterns a larger stack. False if there is none: the limit, or no memory.
  bool grow() const;

 private:
  struct Free {
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
    void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
  };
  std::unique_ptr<pcre2_match_data, Free> data_;
  mutable std::unique_ptr<pcre2_jit_stack, Free> stack_;  // outlives the context that uses it
  mutable std::size_t stack_size_ = 0;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

class Pattern {
 public:
  // `where` is the beginning of error texts. Throws Failure.
  Pattern(const std::string& regex, const std::string& where);
  // Returns a pattern that matches `text` literally.
  static std::string literal(std::string_view text);
  // True if the valid UTF-8 text holds a character for which a class of this pattern and PCRE2's tables disagree. Then
  // `next` must be asked for the exact match, which is slower.
  bool needs_exact(std::string_view text) const;
  // True if it may match nothing.
  bool empty() const { return empty_; }
  struct Position {
    std::size_t from = 0;
    std::size_t last = ~std::size_t{0};  // where the last match ended
  };
  // The next match in valid UTF-8, which may be empty, as the `tokenizers` library finds it. Throws Failure if matching
  // exceeds PCRE2's limits.
  bool next(std::string_view text, Position& position, bool exact, const MatchState& state, std::size_t* begin,
            std::size_t* end) const;

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  };
  struct Compiled {
    std::unique_ptr<pcre2_code, Free> code;
    bool jit = false;
  };
  Compiled compile(const std::string& translated) const;
  std::string where_;
  Compiled plain_, exact_;  // by PCRE2's classes; by ours, where they differ
  std::vector<CharacterRange> disputed_;
  bool empty_ = false;
  std::vector<bool> pages_;  // of 256 characters, that have a disputed one
};

}  // namespace text_data
