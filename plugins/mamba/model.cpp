// SPDX-License-Identifier: Apache-2.0
// Mamba-1 (Gu and Dao 2023) as a list of ops. Shapes in comments: B batch, T time, H hidden, E channels, N states, R
// rank of the time step.
#include "model.hpp"

#include "blocks.hpp"
#include "ops.hpp"

namespace mamba {
namespace {

using model::constant;
using model::Init;
using model::normal;
using model::uniform;

// x (B, T, parts N), each of its parts divided by the root of its mean square.
eng_id normed(eng_build* b, eng_id x, int64_t parts, int64_t n, double eps) {
  eng_desc d{};
  if (b->api->shape(b, x, &d, nullptr) != ENG_OK) return 0;
  const std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  const eng_desc desc = {ENG_F32, 1, {n}};
  eng_id weight = 0;
  b->api->constant(b, &desc, ones.data(), &weight, nullptr);
  if (d.dtype != ENG_F32) weight = eng_cast(b, weight, d.dtype);
  if (parts == 1) return eng_rms_norm(b, x, weight, eps);
  const int64_t divided[2] = {parts, n}, all[1] = {parts * n};
  return eng_reshape(b, eng_rms_norm(b, eng_reshape(b, x, 2, divided, 2), weight, eps), 2, all, 1);
}

}  // namespace

// In every block matrices come first, then vectors without weight decay, then parameters that stay f32, so that each
// kind is one run of elements. The ids of biases that the model does not have are 0.
struct Model::Weights {
  eng_id in_proj, x_proj, dt_proj, out_proj, conv, norm, conv_bias, in_bias, out_bias, a_log, d, dt_bias;

  // Calls f(id, name, dims, flags, init) for each parameter that the model has, in this order.
  template <class F>
  void each(const Config& c, F f) {
    constexpr uint32_t free = ENG_PARAM_NO_DECAY, state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
    const int64_t hidden = c.hidden, channels = c.inner, rank = c.rank;
    const Init narrow = normal(c.std);
    const double depth = c.rescale ? std::sqrt(static_cast<double>(c.layers)) : 1.0;
    const double dt = c.dt_scale / std::sqrt(static_cast<double>(rank));
    f(in_proj, "mixer.in_proj.weight", {2 * channels, hidden}, 0, c.hugging_face ? narrow : by_inputs(hidden));
    f(x_proj, "mixer.x_proj.weight", {rank + 2 * c.states, channels}, 0, c.hugging_face ? narrow : by_inputs(channels));
    f(dt_proj, "mixer.dt_proj.weight", {channels, rank}, 0, c.dt_constant ? constant(dt) : uniform(dt));
    f(out_proj, "mixer.out_proj.weight", {hidden, channels}, 0, by_inputs(channels, depth));
    f(conv, "mixer.conv1d.weight", {channels, 1, c.taps}, 0, by_inputs(c.taps));
    f(norm, "norm.weight", {hidden}, free, constant(1.0));
    if (c.conv_bias)
      f(conv_bias, "mixer.conv1d.bias", {channels}, free, c.hugging_face ? constant(0.0) : by_inputs(c.taps));
    if (c.bias) {
      f(in_bias, "mixer.in_proj.bias", {2 * channels}, free, constant(0.0));
      f(out_bias, "mixer.out_proj.bias", {hidden}, free, constant(0.0));
    }
    f(a_log, "mixer.A_log", {channels, c.states}, state, Init{MAMBA_OP_INIT_A_LOG, {{"states", c.states, 0.0}}});
    f(d, "mixer.D", {channels}, state, constant(1.0));
    f(dt_bias, "mixer.dt_proj.bias", {channels}, state,
      Init{MAMBA_OP_INIT_DT_BIAS,
           {{"low", 0, std::log(c.dt_min)}, {"high", 0, std::log(c.dt_max)}, {"floor", 0, c.dt_floor}}});
  }
};

eng_model_info Model::describe() const {
  return info_of(c_);
}

void Model::declare(eng_build* b) const {
  declare_blocks<Weights>(b, c_);
}

eng_id Model::layer(eng_build* b, const Weights& w, eng_id h) const {
  const eng_id n = eng_rms_norm(b, h, w.norm, c_.eps);       // (B, T, H)
  const eng_id xz = eng_linear(b, n, w.in_proj, w.in_bias);  // (B, T, 2E) = [x | z]
  const eng_id segments = eng_offered(b, "segments");        // (B, T)
  const uint32_t more = segments ? 1 : 0;
  const eng_id conv_in[4] = {xz, w.conv, w.conv_bias, segments};
  const eng_id u = eng_emit1(b, MAMBA_OP_CONV, conv_in, 3 + more, nullptr, 0);  // (B, T, E)
  const eng_id low = eng_linear(b, u, w.x_proj, 0);                             // (B, T, R + 2N)
  const eng_attr at = {.key = "at", .i = c_.rank, .f = 0.0};
  eng_id part[2] = {0, 0};  // (B, T, R) and (B, T, 2N) = [B | C]
  b->api->emit(b, MAMBA_OP_SPLIT, &low, 1, part, 2, &at, 1, nullptr);
  if (c_.inner_eps > 0) {
    part[0] = normed(b, part[0], 1, c_.rank, c_.inner_eps);
    part[1] = normed(b, part[1], 2, c_.states, c_.inner_eps);
  }
  const eng_id delta = eng_linear(b, part[0], w.dt_proj, 0);  // (B, T, E)
  const eng_id in[10] = {u, delta, w.a_log, part[1], w.d, w.dt_bias, xz, part[0], w.dt_proj, segments};
  eng_id y[2] = {0, 0};  // (B, T, E), and the states from which the backward starts
  b->api->emit(b, MAMBA_OP_SCAN, in, 9 + more, y, 2, nullptr, 0, nullptr);
  return eng_add(b, eng_linear(b, y[0], w.out_proj, w.out_bias), h);  // (B, T, H)
}

std::vector<model::Signature> Model::templates() const {
  return signatures_of<Weights>(c_);
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl != model::layer_template) return trace_ends(b, tmpl, params, in, c_.eps, c_.wide);
  return layer(b, taken<Weights>(c_, params), in[0]);
}

}  // namespace mamba
