// SPDX-License-Identifier: Apache-2.0
// The backward of a block, derived from its ops' gradient rules.
#pragma once

#include "core/trace/graph.hpp"

namespace eng {

// Appends the backward nodes of a template. `first`: the block has no differentiable input; `last`: its
// only output is the loss. `frozen`: the parameters that need no gradient; none if empty.
void derive_backward(Template& block, bool first, bool last, const std::vector<char>& frozen = {});

}  // namespace eng
