// SPDX-License-Identifier: Apache-2.0
// Translates a pattern of tokenizer.json to PCRE2's syntax. The `tokenizers` library reads it by Oniguruma in Ruby's
// syntax. Both have constructs that look the same and mean something else: each construct is either written so that
// PCRE2 means what Oniguruma means, or refused.
#pragma once

#include <string>
#include <vector>

#include "unicode.hpp"

namespace text_data {

struct TranslatedPattern {
  std::string text;
  std::vector<CharacterRange> disputed;  // characters for which a class of `text` and PCRE2's tables disagree
  bool empty = false;                    // it may match nothing
};

// `where` is the beginning of error texts. With `exact`, classes are written by our tables where PCRE2's disagree,
// which is slower to match. Throws Failure, which names the construct and its position.
TranslatedPattern translate_oniguruma(const std::string& regex, const std::string& where, bool exact);

}  // namespace text_data
