// SPDX-License-Identifier: Apache-2.0
// Ops of plugins that [parallel] tensor divides: they compute some channels from the same channels of their inputs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace eng {

// plugins/transform/magnitude.hpp, plugins/moe/ops.hpp
constexpr const char* op_row_norm = "eng.low_rank.row_norm/1";
constexpr const char* op_magnitude = "eng.low_rank.magnitude/1";
constexpr const char* op_route = "eng.moe.route/1";
constexpr const char* op_experts = "eng.moe.linear/1";
constexpr const char* op_experts_sum = "eng.moe.combine/1";

// Inputs by number. All others are whole, and have no gradient. The outputs are divided along their last dimension.
struct DividedOp {
  const char* id;
  std::initializer_list<uint32_t> channels;  // values that are divided along the last dimension
  std::initializer_list<uint32_t> rows;      // parameters that are divided along the first
  std::initializer_list<uint32_t> shared;    // whole values whose gradients are sums over all channels
  // The number of equal parts that input 0, or the input `gate`, consists of along its last dimension, each of them
  // divided for itself: [gate | up], [x | z].
  uint32_t groups;
  uint32_t gate;
};

inline const DividedOp* divided_op(const std::string& id) {
  static const DividedOp all[] = {
      {"eng.moe.gated/1", {0}, {}, {1}, 2, 0},
      // x, w, bias; u, delta, a_log, [B | C], d, dt_bias, gate, dt, w: plugins/mamba/ops.hpp
      {"eng.mamba.causal_conv1d/1", {0}, {1, 2}, {}, 2, 0},
      {"eng.mamba.selective_scan/1", {0, 1, 6}, {2, 4, 5, 8}, {3}, 2, 6},
  };
  for (const DividedOp& one : all)
    if (id == one.id) return &one;
  return nullptr;
}

}  // namespace eng
