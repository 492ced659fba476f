// SPDX-License-Identifier: Apache-2.0
#include "mixer.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "ssd.hpp"

namespace mamba {
namespace {

eng_id scaled(eng_build* b, eng_id x, double factor) {
  return factor == 1.0 ? x : eng_scale(b, x, factor);
}

// The columns of in_proj as the gate (B, T, E) and [x | B | C | dt] (B, T, C + H).
void divide(eng_build* b, const Mixer& c, eng_id all, eng_id part[2]) {
  if (c.factors == std::array<double, 5>{1.0, 1.0, 1.0, 1.0, 1.0}) {
    const int64_t sizes[2] = {c.inner(), c.convolved() + c.heads};
    eng_split(b, all, 2, 2, sizes, part);
    return;
  }
  const int64_t shared = c.groups * c.states, sizes[5] = {c.inner(), c.inner(), shared, shared, c.heads};
  eng_id five[5] = {};
  eng_split(b, all, 2, 5, sizes, five);
  for (size_t k = 0; k < 5; ++k) five[k] = scaled(b, five[k], c.factors[k]);
  part[0] = five[0], part[1] = eng_concat(b, five + 1, 4, 2);
}

// y (B, T, E) behind the gate.
eng_id opened(eng_build* b, const Mixer& c, eng_id weight, eng_id y, eng_id gate) {
  if (c.gate == Gate::behind_norm) y = eng_rms_norm(b, y, weight, c.eps);
  if (c.gate != Gate::normed) return eng_gated(b, gate, y, ENG_ACT_SILU);
  const eng_attr attrs[2] = {{"groups", c.groups, 0}, {"eps", 0, c.eps}};
  const eng_id in[3] = {y, gate, weight};
  return eng_emit1(b, MAMBA_OP_GATED_NORM, in, 3, attrs, 2);
}

}  // namespace

eng_id mixed(eng_build* b, const Mixer& c, const MixerWeights& w, eng_id x) {
  const eng_id all = eng_linear(b, scaled(b, x, c.scale), w.in_proj, w.in_bias);  // (B, T, E + C + H)
  eng_id part[2] = {0, 0};
  divide(b, c, all, part);
  const eng_id segments = eng_offered(b, "segments");  // (B, T)
  const uint32_t more = segments ? 1 : 0;
  const eng_id conv_in[4] = {part[1], w.conv, w.conv_bias, segments};
  const eng_id xbc = eng_emit1(b, MAMBA_OP_CONV, conv_in, 3 + more, nullptr, 0);  // (B, T, C)
  const eng_attr scan[4] = {{"groups", c.groups, 0}, {"states", c.states, 0}, {"low", 0, c.low}, {"high", 0, c.high}};
  const eng_id in[6] = {xbc, part[1], w.a_log, w.d, w.dt_bias, segments};
  const eng_id y = eng_emit1(b, MAMBA_OP_SSD, in, 5 + more, scan, 4);  // (B, T, E)
  return eng_linear(b, opened(b, c, w.norm, y, part[0]), w.out_proj, w.out_bias);
}

void read_limits(const model::Reader& in, Mixer& c) {
  c.low = 0.0, c.high = std::numeric_limits<double>::infinity();
  if (!in.given("time_step_limit")) return;
  const std::vector<double> limits = in.reals("time_step_limit");
  if (limits.size() != 2)
    model::invalid("time_step_limit has " + std::to_string(limits.size()) +
                   " numbers; give two, the shortest and the longest time step");
  if (!(limits[0] >= 0 && limits[1] > limits[0]))
    model::invalid("time_step_limit is " + model::number(limits[0]) + " to " + model::number(limits[1]) +
                   "; give two numbers from 0 on, the smaller one first");
  c.low = limits[0];
  if (limits[1] < std::numeric_limits<float>::max()) c.high = limits[1];
}

model::Init initial_steps(double dt_min, double dt_max, double dt_floor) {
  return {MAMBA_OP_INIT_DT_BIAS, {{"low", 0, std::log(dt_min)}, {"high", 0, std::log(dt_max)}, {"floor", 0, dt_floor}}};
}

}  // namespace mamba
