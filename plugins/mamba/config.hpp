// SPDX-License-Identifier: Apache-2.0
// The model's options, checked, with derived values filled in.
#pragma once

#include <cstdint>

#include "engine/base.h"

namespace mamba {

struct Config {
  int64_t vocabulary, hidden, layers, states, taps;
  int64_t inner, rank;                        // channels; rank of the time step
  double eps, std;                            // of the norms; of new matrices
  double inner_eps;                           // of the norms of dt, B and C; 0: there are none
  double dt_scale, dt_min, dt_max, dt_floor;  // initial time steps
  bool dt_constant, bias, conv_bias, tied, rescale;
  bool wide;          // the residual stream is f32 where compute has 16 bits
  bool hugging_face;  // rules of initialisation: those of transformers; false: those of mamba_ssm
};

// Throws model::Failure that names the key and what to change. `normed`: the model has norms of dt, B and C.
Config read_config(const eng_options* options, eng_error* error, bool normed);

}  // namespace mamba
