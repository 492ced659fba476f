// SPDX-License-Identifier: Apache-2.0
// The model's options, checked, with derived values filled in.
#pragma once

#include <cstdint>

#include "engine/base.h"
#include "rope.hpp"

namespace llama {

struct Config {
  int64_t vocabulary, hidden, ffn, layers, heads, kv_heads, head_dim, max_positions;
  int64_t act;  // ENG_ACT_*
  double eps, init_std, z_loss;
  bool tied, attention_bias, mlp_bias, depth_scale;
  Rope rope;
};

// Throws model::Failure(ENG_INVALID) that names the key and what to change.
Config read_config(const eng_options* options, eng_error* error);

}  // namespace llama
