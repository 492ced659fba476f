// SPDX-License-Identifier: Apache-2.0
// Chooses the activations of a traced model that the backward computes again instead of reading them from memory. A
// value computed again has the same bits, so no choice changes a result.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

// [recompute]. A layer is a block that is neither the first nor the last.
struct Recompute {
  enum class Kind : uint8_t {
    none,
    full,    // each layer keeps only its input
    every,   // each n-th layer keeps only its input
    blocks,  // the layers are cut into n runs, the first (layers mod n) one longer; each run keeps only its input
    budget,  // drops values, those with the most bytes per FLOP first, until at most n bytes are kept
  } kind = Kind::none;
  uint64_t n = 0;
};

// Gives layers templates of their own, and sets Block::recomputed. Throws Error(Exit::usage) for more runs than layers,
// or a budget that no choice meets.
void recompute(Model& model, const Recompute& how);

// Bytes kept from the forward to the backward of a micro-batch, and FLOPs of the forward that run again.
struct Kept {
  uint64_t bytes = 0;
  double again = 0;
};
Kept kept(const Model& model);

}  // namespace eng
