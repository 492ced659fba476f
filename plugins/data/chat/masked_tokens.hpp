// SPDX-License-Identifier: Apache-2.0
// The tokens of a conversation, each with a bit: trained, or not; and their weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../tokenizer.hpp"
#include "spans.hpp"

namespace text_data {

struct MaskedTokens {
  std::vector<int32_t> values;  // 2 * id, and 1 more for a token that is trained
  std::vector<float> weights;   // of each token in the loss; those that are not trained have any
};

// A token is trained if a byte of it lies in a span; its weight is that of the first such span. The ids are those of
// the whole text. Throws Failure, which begins with `where`, if the tokenizer changes the text so that the bytes of a
// token are not known.
MaskedTokens masked_tokens(const Tokenizer& tokenizer, const MaskedText& of, const std::string& where);

}  // namespace text_data
