// SPDX-License-Identifier: Apache-2.0
// The mixer of a layer of Mamba-2, for the models that have it. Shapes in comments: B batch, T time, D hidden, H heads,
// P channels of a head, N states of a channel, G groups, E = H P channels, C = E + 2 G N columns of the convolution.
#pragma once

#include <array>

#include "../common/model.hpp"

namespace mamba {

// The end of a mixer, behind the scan: a norm of what the gate lets through, in `groups` parts; the gate alone;
// or a gate behind the norm of a whole row.
enum class Gate { normed, alone, behind_norm };

struct Mixer {
  int64_t heads, width, states, groups, taps;  // channels of a head, states of a channel
  double eps;                                  // of the norm
  double dt_min, dt_max, dt_floor;             // initial time steps
  double low, high;                            // limits of time steps
  bool bias, conv_bias;                        // of in_proj; of the convolution
  bool out_bias;
  Gate gate = Gate::normed;
  double scale = 1.0;                                         // of the input
  std::array<double, 5> factors = {1.0, 1.0, 1.0, 1.0, 1.0};  // of the columns of in_proj: gate, x, B, C, time steps

  int64_t inner() const { return heads * width; }
  int64_t convolved() const { return inner() + 2 * groups * states; }  // columns of [x | B | C]
  int64_t columns() const { return inner() + convolved() + heads; }    // of in_proj
};

// Ids of parameters; 0: the layer has no such one.
struct MixerWeights {
  eng_id in_proj, in_bias, conv, conv_bias, a_log, d, dt_bias, norm, out_proj, out_bias;
};

// The summand of the mixer in the residual stream, (B, T, D), from x (B, T, D).
eng_id mixed(eng_build* b, const Mixer& c, const MixerWeights& w, eng_id x);

// Sets the limits of time steps by the option time_step_limit, which may be absent. Throws model::Failure that says
// what to change.
void read_limits(const model::Reader& in, Mixer& c);
// The initial value of dt_bias.
model::Init initial_steps(double dt_min, double dt_max, double dt_floor);

}  // namespace mamba
