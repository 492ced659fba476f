// SPDX-License-Identifier: Apache-2.0
// The content of a tokenizer.json, or of a vocab.json with its merges.txt, in the form that this plugin uses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "pattern.hpp"
#include "tokenizer.hpp"

namespace text_data {

extern const int nfc_form;  // what `form` is for NFC

struct HuggingFaceFile {
  struct Added {
    AddedToken token;
    bool normalised;  // looked for in normalised text, and itself normalised
  };
  // One pre-tokenizer: splits at the matches of a pattern, and keeps the matches and the text between them.
  struct Step {
    std::shared_ptr<const Pattern> pattern;  // may be none
    bool remove = false;                     // drop the matches; with `invert`, the rest instead
    bool invert = false;
    bool prefix_space = false;  // before a text that does not begin with one
  };
  Bpe bpe;
  int form = 0;  // flags of utf8proc_map; 0: nothing to normalise
  std::vector<Added> added;
  std::vector<Step> steps;
  std::vector<int32_t> prefix, suffix;  // ids around a text
  std::vector<std::string> pieces;      // bytes of each id
  Tokenizer::Info info;
};

// Throws Failure("FILE: PLACE: what").
HuggingFaceFile read_huggingface(const std::string& file);

}  // namespace text_data
