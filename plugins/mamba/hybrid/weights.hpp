// SPDX-License-Identifier: Apache-2.0
// The parameters of a layer of a hybrid, in their order; a part of model.cpp.
#pragma once

#include "../blocks.hpp"
#include "../ssd.hpp"
#include "model.hpp"

namespace hybrid {

// True if a second norm stands between the mixer, or the attention, and what follows it.
inline bool two_sublayers(uint32_t parts) {
  return (parts & (feeds | routes)) && (parts & (mixes | attends));
}

// Mamba-1: matrices; vectors, of which the norms are of dt, B and C; parameters that stay f32.
template <class F>
void Model::each_selective_matrix(mamba::SelectiveWeights& w, F f) const {
  const int64_t channels = h_.mixer.inner(), rank = h_.selective->rank, states = h_.selective->states;
  const std::string mix = h_.mixer_name + ".";
  const double step = 1.0 / std::sqrt(static_cast<double>(rank));
  f(w.in_proj, mix + "in_proj.weight", {2 * channels, c_.hidden}, 0, model::normal(c_.init_std));
  f(w.x_proj, mix + "x_proj.weight", {rank + 2 * states, channels}, 0, model::normal(c_.init_std));
  f(w.dt_proj, mix + "dt_proj.weight", {channels, rank}, 0, model::uniform(step));
  f(w.out_proj, mix + "out_proj.weight", {c_.hidden, channels}, 0, model::normal(c_.init_out_std));
  f(w.conv, mix + "conv1d.weight", {channels, 1, h_.mixer.taps}, 0, mamba::by_inputs(h_.mixer.taps));
}

template <class F>
void Model::each_selective_vector(mamba::SelectiveWeights& w, F f) const {
  constexpr uint32_t free = ENG_PARAM_NO_DECAY;
  const mamba::Mixer& s = h_.mixer;
  const std::string mix = h_.mixer_name + ".";
  const int64_t states = h_.selective->states;
  if (s.conv_bias) f(w.conv_bias, mix + "conv1d.bias", {s.inner()}, free, model::constant(0.0));
  if (s.bias) f(w.in_bias, mix + "in_proj.bias", {2 * s.inner()}, free, model::constant(0.0));
  if (s.out_bias) f(w.out_bias, mix + "out_proj.bias", {c_.hidden}, free, model::constant(0.0));
  f(w.norms[0], mix + "dt_layernorm.weight", {h_.selective->rank}, free, model::constant(1.0));
  f(w.norms[1], mix + "b_layernorm.weight", {states}, free, model::constant(1.0));
  f(w.norms[2], mix + "c_layernorm.weight", {states}, free, model::constant(1.0));
}

template <class F>
void Model::each_selective_state(mamba::SelectiveWeights& w, F f) const {
  constexpr uint32_t state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
  const mamba::Mixer& s = h_.mixer;
  const std::string mix = h_.mixer_name + ".";
  const int64_t states = h_.selective->states;
  f(w.a_log, mix + "A_log", {s.inner(), states}, state, model::Init{MAMBA_OP_INIT_A_LOG, {{"states", states, 0.0}}});
  f(w.d, mix + "D", {s.inner()}, state, model::constant(1.0));
  f(w.dt_bias, mix + "dt_proj.bias", {s.inner()}, state, mamba::initial_steps(s.dt_min, s.dt_max, s.dt_floor));
}

// Matrices come first, then vectors without weight decay, then parameters that stay f32, so that each kind is one run
// of elements.
template <class F>
void Model::each(uint32_t parts, Weights& w, F f) const {
  using model::constant, model::Init, model::normal;
  constexpr uint32_t free = ENG_PARAM_NO_DECAY, state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
  const mamba::Mixer& s = h_.mixer;
  const bool mixes1 = (parts & mixes) && h_.selective, mixes2 = (parts & mixes) && !h_.selective;  // Mamba-1, Mamba-2
  const std::string mix = h_.mixer_name + ".";
  const auto sizes = decoder::map_shapes(c_);
  const auto has = [&](size_t map) { return c_.maps[map].name && (parts & (map < decoder::gate ? attends : feeds)); };
  if (mixes1) each_selective_matrix(w.selective, f);
  if (mixes2) {
    const Init out = h_.out_divisor != 0.0 ? mamba::by_inputs(s.inner(), h_.out_divisor) : normal(c_.init_out_std);
    f(w.mixer.in_proj, mix + "in_proj.weight", {s.columns(), c_.hidden}, 0, normal(c_.init_std));
    f(w.mixer.out_proj, mix + "out_proj.weight", {c_.hidden, s.inner()}, 0, out);
    f(w.mixer.conv, mix + "conv1d.weight", {s.convolved(), 1, s.taps}, 0, mamba::by_inputs(s.taps));
  }
  for (size_t m = 0; m < decoder::map_count; ++m) {
    const bool out = m == decoder::o || m == decoder::down;
    if (has(m))
      f(w.w[m], std::string(c_.maps[m].name) + ".weight", {sizes[m].rows, sizes[m].columns}, 0,
        normal(out ? c_.init_out_std : c_.init_std));
  }
  if (parts & routes) decoder::each_expert_matrix(h_.experts, c_, w.experts, f);
  if (mixes1) each_selective_vector(w.selective, f);
  if (mixes2) {
    if (s.conv_bias) f(w.mixer.conv_bias, mix + "conv1d.bias", {s.convolved()}, free, constant(0.0));
    if (s.gate != mamba::Gate::alone) f(w.mixer.norm, mix + "norm.weight", {s.inner()}, free, constant(1.0));
    if (s.bias) f(w.mixer.in_bias, mix + "in_proj.bias", {s.columns()}, free, constant(0.0));
    if (s.out_bias) f(w.mixer.out_bias, mix + "out_proj.bias", {c_.hidden}, free, constant(0.0));
  }
  for (size_t m = 0; m < decoder::map_count; ++m)
    if (has(m) && c_.maps[m].bias)
      f(w.bias[m], std::string(c_.maps[m].name) + ".bias", {sizes[m].rows}, free, constant(0.0));
  if (parts & routes) decoder::each_expert_bias(h_.experts, c_, w.experts, f);
  f(w.attention_norm.weight, std::string(c_.attention_norm) + ".weight", {c_.hidden}, free, constant(1.0));
  if (two_sublayers(parts))
    f(w.ffn_norm.weight, std::string(c_.ffn_norm) + ".weight", {c_.hidden}, free, constant(1.0));
  if (parts & routes) decoder::each_expert_state(h_.experts, w.experts, f);
  if (mixes1) each_selective_state(w.selective, f);
  if (!mixes2) return;
  f(w.mixer.a_log, mix + "A_log", {s.heads}, state,
    Init{MAMBA_OP_INIT_LOG_UNIFORM, {{"low", 0, 1.0}, {"high", 0, 16.0}}});
  f(w.mixer.d, mix + "D", {s.heads}, state, constant(1.0));
  f(w.mixer.dt_bias, mix + "dt_bias", {s.heads}, state, mamba::initial_steps(s.dt_min, s.dt_max, s.dt_floor));
}

}  // namespace hybrid
