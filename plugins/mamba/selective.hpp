// SPDX-License-Identifier: Apache-2.0
// The mixer of a layer of Mamba-1, for the models that have it. Shapes in comments: B batch, T time, D hidden, E
// channels, N states of a channel, R rank of the time step.
#pragma once

#include <array>

#include "../common/model.hpp"

namespace mamba {

struct Selective {
  int64_t rank, states;
  double inner_eps = 0.0;  // of the norms of dt, B and C; 0: there are none
};

// Ids of parameters; 0: the layer has no such one. The norms of dt (R), B (N) and C (N) are without weights if all
// three are 0.
struct SelectiveWeights {
  eng_id in_proj, x_proj, dt_proj, out_proj, conv, conv_bias, in_bias, out_bias, a_log, d, dt_bias;
  std::array<eng_id, 3> norms;
};

// The summand of the mixer in the residual stream, (B, T, D), from x (B, T, D).
eng_id mixed(eng_build* b, const Selective& c, const SelectiveWeights& w, eng_id x);

}  // namespace mamba
