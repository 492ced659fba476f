// SPDX-License-Identifier: Apache-2.0
// Composite ops: ops that are made of other ops (eng_op.expand), down to ops that have kernels.
#pragma once

#include "core/trace/graph.hpp"

namespace eng {

// Emits an op into some graph, and returns its outputs.
using Emit = std::function<std::vector<Id>(const Op& op, std::vector<Id> in, Attrs attrs)>;

// True if the op is replaced where it is emitted. Its gradient and its next positions are then those of its parts.
inline bool dissolves(const Op& op) {
  return op.expand && !op.grad;
}

// Emits the parts of a composite op by `emit`, which writes to `graph`. Returns the values that are its outputs. Throws
// Error(Exit::environment) that names the op.
std::vector<Id> dissolve(const Graph& graph, const Op& op, const std::vector<Id>& in, const Attrs& attrs,
                         const Emit& emit);

// Replaces the composite ops with a gradient of their own by their parts, when the backward has been derived.
void lower(Template& block);

}  // namespace eng
