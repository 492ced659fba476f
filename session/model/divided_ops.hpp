// SPDX-License-Identifier: Apache-2.0
// Ops of plugins that [parallel] tensor divides: they compute some channels from the same channels of their inputs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace eng {

// plugins/transform/magnitude.hpp, plugins/common/decoder/expert_ops.hpp, plugins/mamba/ops.hpp, plugins/mamba/ssd.hpp
constexpr const char* op_row_norm = "eng.low_rank.row_norm/1";
constexpr const char* op_magnitude = "eng.low_rank.magnitude/1";
constexpr const char* op_route = "eng.moe.route/1";
constexpr const char* op_route_sigmoid = "eng.moe.route_sigmoid/1";
constexpr const char* op_experts = "eng.moe.linear/1";
constexpr const char* op_experts_gated = "eng.moe.gated/1";
constexpr const char* op_experts_sum = "eng.moe.combine/1";
constexpr const char* op_conv = "eng.mamba.causal_conv1d/1";
constexpr const char* op_scan = "eng.mamba.selective_scan/1";
constexpr const char* op_scan_grad = "eng.mamba.selective_scan_grad/1";
constexpr const char* op_ssd = "eng.mamba.ssd/1";
constexpr const char* op_gated_norm = "eng.mamba.gated_norm/1";
constexpr const char* op_gated_squares = "eng.mamba.gated_squares/1";  // plugins/mamba/norm_part.hpp
constexpr const char* op_gated_norm_part = "eng.mamba.gated_norm_part/1";

// Inputs by number. All others are whole, and have no gradient. The outputs are divided along their last dimension.
struct DividedOp {
  const char* id;
  std::initializer_list<uint32_t> channels;  // values that are divided along the last dimension
  std::initializer_list<uint32_t> rows;      // parameters that are divided along the first
  std::initializer_list<uint32_t> shared;    // whole values whose gradients are sums over all channels
};

inline const DividedOp* divided_op(const std::string& id) {
  static const DividedOp all[] = {
      {op_experts_gated, {0}, {}, {1}},  // [gate | up], weights
      // x, w, bias; u, delta, a_log, [B | C], d, dt_bias, gate, dt, w
      {op_conv, {0}, {1, 2}, {}},
      {op_scan, {0, 1, 6}, {2, 4, 5, 8}, {3}},
      // [x | B | C], [... | dt], a_log, d, dt_bias; x, z, w. The attribute `groups` is of all heads.
      {op_ssd, {0, 1}, {2, 3, 4}, {}},
      {op_gated_norm, {0, 1}, {2}, {}},
  };
  for (const DividedOp& one : all)
    if (id == one.id) return &one;
  return nullptr;
}

}  // namespace eng
