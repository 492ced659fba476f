// SPDX-License-Identifier: Apache-2.0
// The tokens of a conversation, each with a bit: trained, or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../tokenizer.hpp"
#include "spans.hpp"

namespace text_data {

// 2 * id, and 1 more for a token that is trained: one of which a byte lies in a span. The ids are those of the whole
// text. Throws Failure, which begins with `where`, if the tokenizer changes the text so that the bytes of a token are
// not known.
std::vector<int32_t> masked_tokens(const Tokenizer& tokenizer, const MaskedText& of, const std::string& where);

}  // namespace text_data
