// SPDX-License-Identifier: Apache-2.0
// Heads of any vocabulary: rows of zeros in memory behind the weight that logits come from, for libraries of products
// that are fast only with a multiple of some number of rows.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

// Gives the weight of each head a multiple of `multiple` rows in memory, and its ops the attribute `vocabulary`. A head
// is a weight (V, H) of a block in which only cross-entropies and log-probabilities of labels read it. The parameter
// itself keeps its V rows for checkpoints, optimizers, exports, and for blocks that read it otherwise.
void pad_heads(Model& model, int64_t multiple);

// The weights that pad_heads has given more rows.
struct PaddedHead {
  std::string parameter;
  int64_t rows = 0, in_memory = 0;
  int64_t zeros = 0;   // elements
  uint64_t bytes = 0;  // of these, in the type in which compute reads the weight
};
std::vector<PaddedHead> padded_heads(const Model& model);

}  // namespace eng
