// SPDX-License-Identifier: Apache-2.0
// Mamba-2 (Dao and Gu 2024) as a list of ops. Shapes in comments: B batch, T time, D hidden.
#include "mamba2.hpp"

#include <string>

#include "blocks.hpp"
#include "ssd.hpp"

namespace mamba {
namespace {

using model::constant;
using model::Init;
using model::normal;

void need(bool right, const std::string& rule) {
  if (!right) model::invalid(rule);
}

}  // namespace

Mamba2::Mamba2(const eng_options* options, eng_error* error) {
  const model::Reader in(options, error);
  Mixer& m = c_.mixer;
  c_.vocabulary = in.size("vocab_size"), c_.hidden = in.size("hidden_size"), c_.layers = in.size("num_hidden_layers");
  m.heads = in.size("num_heads"), m.width = in.size("head_dim"), m.states = in.size("state_size");
  m.groups = in.size("n_groups"), m.taps = in.integer("conv_kernel");
  const auto count = [](int64_t n) { return std::to_string(n); };
  const int64_t expanded = in.size("expand") * c_.hidden;
  need(m.inner() == expanded, "num_heads x head_dim is " + count(m.inner()) + ", and expand x hidden_size is " +
                                  count(expanded) + "; they must be equal");
  need(m.heads % m.groups == 0,
       "num_heads is " + count(m.heads) + "; it must be a multiple of n_groups, " + count(m.groups));
  c_.eps = m.eps = in.real("layer_norm_epsilon");
  need(c_.eps > 0, "layer_norm_epsilon must be above 0 (1e-5 is usual)");
  m.dt_min = in.real("time_step_min"), m.dt_max = in.real("time_step_max"), m.dt_floor = in.real("time_step_floor");
  need(m.dt_min > 0, "time_step_min must be above 0 (0.001 is usual)");
  need(m.dt_max >= m.dt_min, "time_step_max must not be below time_step_min");
  need(m.dt_floor > 0, "time_step_floor must be above 0 (0.0001 is usual)");
  read_limits(in, m);
  m.bias = m.out_bias = in.flag("use_bias"), m.conv_bias = in.flag("use_conv_bias");
  c_.tied = in.flag("tie_word_embeddings");
  c_.wide = in.flag("residual_in_fp32");
  c_.hugging_face = in.text("init") == "huggingface";
  c_.std = in.real_or("initializer_range", c_.hugging_face ? 0.1 : 0.02);
  c_.rescale = in.given("rescale_prenorm_residual") ? in.flag("rescale_prenorm_residual") : !c_.hugging_face;
}

// In every block matrices come first, then vectors without weight decay, then parameters that stay f32, so that each
// kind is one run of elements. The ids of biases that the model does not have are 0.
struct Mamba2::Weights {
  MixerWeights mixer;
  eng_id norm;

  // Calls f(id, name, dims, flags, init) for each parameter that the model has, in this order.
  template <class F>
  void each(const Config2& c, F f) {
    constexpr uint32_t free = ENG_PARAM_NO_DECAY, state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
    const Mixer& s = c.mixer;
    MixerWeights& m = mixer;
    const int64_t inner = s.inner(), convolved = s.convolved(), columns = s.columns();
    const double depth = c.rescale ? std::sqrt(static_cast<double>(c.layers)) : 1.0;
    const Init rates = c.hugging_face ? Init{MAMBA_OP_INIT_A_LOG, {{"states", s.heads, 0.0}}}
                                      : Init{MAMBA_OP_INIT_LOG_UNIFORM, {{"low", 0, 1.0}, {"high", 0, 16.0}}};
    f(m.in_proj, "mixer.in_proj.weight", {columns, c.hidden}, 0, c.hugging_face ? normal(c.std) : by_inputs(c.hidden));
    f(m.out_proj, "mixer.out_proj.weight", {c.hidden, inner}, 0, by_inputs(inner, depth));
    f(m.conv, "mixer.conv1d.weight", {convolved, 1, s.taps}, 0, by_inputs(s.taps));
    f(norm, "norm.weight", {c.hidden}, free, constant(1.0));
    if (s.conv_bias)
      f(m.conv_bias, "mixer.conv1d.bias", {convolved}, free, c.hugging_face ? constant(0.0) : by_inputs(s.taps));
    f(m.norm, "mixer.norm.weight", {inner}, free, constant(1.0));
    if (s.bias) {
      f(m.in_bias, "mixer.in_proj.bias", {columns}, free, constant(0.0));
      f(m.out_bias, "mixer.out_proj.bias", {c.hidden}, free, constant(0.0));
    }
    f(m.a_log, "mixer.A_log", {s.heads}, state, rates);
    f(m.d, "mixer.D", {s.heads}, state, constant(1.0));
    f(m.dt_bias, "mixer.dt_bias", {s.heads}, state, initial_steps(s.dt_min, s.dt_max, s.dt_floor));
  }
};

eng_model_info Mamba2::describe() const {
  return info_of(c_);
}

void Mamba2::declare(eng_build* b) const {
  declare_blocks<Weights>(b, c_);
}

eng_id Mamba2::layer(eng_build* b, const Weights& w, eng_id h) const {
  const eng_id n = eng_rms_norm(b, h, w.norm, c_.eps);   // (B, T, D)
  return eng_add(b, mixed(b, c_.mixer, w.mixer, n), h);  // (B, T, D)
}

std::vector<model::Signature> Mamba2::templates() const {
  return signatures_of<Weights>(c_);
}

eng_id Mamba2::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl != model::layer_template) return trace_ends(b, tmpl, params, in, c_.eps, c_.wide);
  return layer(b, taken<Weights>(c_, params), in[0]);
}

}  // namespace mamba
