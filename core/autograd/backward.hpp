// SPDX-License-Identifier: Apache-2.0
// The backward of a block, derived from its ops' gradient rules.
#pragma once

#include "core/trace/graph.hpp"

namespace eng {

// Appends the backward nodes of a template. `first`: no gradient of the block's inputs is needed. `last`: its terms, or
// its output, are the loss. `frozen`: per parameter, whether it needs no gradient; empty: all need one.
// `sequences`: of the batch of a step. Throws Error if an op has no gradient, or if there is no loss.
void derive_backward(Template& block, bool first, bool last, const std::vector<char>& frozen = {},
                     int64_t sequences = 1);

}  // namespace eng
