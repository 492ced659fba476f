// SPDX-License-Identifier: Apache-2.0
// A pass over a traced model: which activations the backward makes again instead of reading what was kept. A value
// made again has the same bits, so no choice here changes a number.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

// [recompute]. A layer is a block that is neither the first nor the last.
struct Recompute {
  enum class Kind : uint8_t {
    none,
    full,    // each layer keeps its input
    every,   // each n-th layer does
    blocks,  // the layers are cut into n runs, the first (layers mod n) of them one longer; each keeps its input
    budget,  // values are dropped until at most n bytes are kept, those with the most bytes per FLOP first
  } kind = Kind::none;
  uint64_t n = 0;
};

// Gives layers templates of their own, and marks those that run forward twice. Throws Error(Exit::usage) if more runs
// than layers are asked for, or a budget that no choice meets.
void recompute(Model& model, const Recompute& how);

// Bytes that are kept from the forward to the backward of one micro-batch, and FLOPs of what is made again.
struct Kept {
  uint64_t bytes = 0;
  double again = 0;
};
Kept kept(const Model& model);

}  // namespace eng
