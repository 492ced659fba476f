// SPDX-License-Identifier: Apache-2.0
// The starts of the documents in a file of tokens, and the weights of its tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "token_file.hpp"

namespace text_data {

// Appends the first token of each document of the file, `base` being its token 0. The engine's own files and Megatron's
// say it; in others, `eot` is the id between two documents (-1: not known). In llm.c's and NeMo's files it begins a
// document, and in llm.c's it is known; in others it ends one. Throws Failure if the file does not say where documents
// begin.
void add_documents(const TokenFile& file, int64_t eot, uint64_t base, std::vector<uint64_t>& starts);

// Appends the weights of a file of the engine's own, which may have none. Throws Failure if they are not in order, or
// not finite.
void add_weights(const TokenFile& file, std::vector<WeightFrom>& out);

}  // namespace text_data
