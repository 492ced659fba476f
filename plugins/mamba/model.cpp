// SPDX-License-Identifier: Apache-2.0
// Mamba-1 (Gu and Dao 2023) as a list of ops. Shapes in comments: B batch, T time, H hidden.
#include "model.hpp"

#include "blocks.hpp"
#include "ops.hpp"
#include "selective.hpp"

namespace mamba {
namespace {

using model::constant;
using model::Init;
using model::normal;
using model::uniform;

}  // namespace

// In every block matrices come first, then vectors without weight decay, then parameters that stay f32, so that each
// kind is one run of elements. The ids of biases that the model does not have are 0.
struct Model::Weights : SelectiveWeights {
  eng_id norm;

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
  const eng_id n = eng_rms_norm(b, h, w.norm, c_.eps);  // (B, T, H)
  return eng_add(b, mixed(b, {c_.rank, c_.states, c_.inner_eps}, w, n), h);
}

std::vector<model::Signature> Model::templates() const {
  return signatures_of<Weights>(c_);
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl != model::layer_template) return trace_ends(b, tmpl, params, in, c_.eps, c_.wide);
  return layer(b, taken<Weights>(c_, params), in[0]);
}

}  // namespace mamba
