// SPDX-License-Identifier: Apache-2.0
// The model's options, checked, with derived values filled in.
#pragma once

#include <cstdint>

#include "engine/base.h"

namespace opt {

struct Config {
  int64_t vocabulary, hidden, ffn, layers, heads, max_positions;
  int64_t word_width;  // width of the embeddings; if it differs from `hidden` they are projected
  int64_t act;         // ENG_ACT_*
  double z_loss;
  double dropout, init_std, init_out_std;  // init_out_std: of the matrices that write to the residual stream
  bool norm_before, final_norm, bias, affine, tied;
  bool projected() const { return word_width != hidden; }
};

// Throws model::Failure(ENG_INVALID) that names the key and what to change.
Config read_config(const eng_options* options, eng_error* error);

}  // namespace opt
