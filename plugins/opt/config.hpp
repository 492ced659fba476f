// SPDX-License-Identifier: Apache-2.0
// What the options say, checked and with derived values filled in.
#pragma once

#include <cstdint>

#include "engine/base.h"

namespace opt {

struct Config {
  int64_t vocabulary, hidden, ffn, layers, heads, max_positions;
  int64_t word_width;                      // of the embeddings; other than `hidden`: projected in and out
  int64_t act;                             // ENG_ACT_*
  double dropout, init_std, init_out_std;  // out: of the matrices that write to the residual stream
  bool norm_before, final_norm, bias, affine, tied;
  bool projected() const { return word_width != hidden; }
};

// Throws model::Failure(ENG_INVALID) that names the key and what to change.
Config read_config(const eng_options* options, eng_error* error);

}  // namespace opt
