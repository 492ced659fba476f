// SPDX-License-Identifier: Apache-2.0
// Mamba-2 (Dao and Gu 2024) as a list of ops. Shapes in comments: B batch, T time, D hidden, H heads, P channels of a
// head, N states of a channel, G groups, E = H P channels, C = E + 2 G N columns of the convolution.
#include "mamba2.hpp"

#include <limits>
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
  c_.vocabulary = in.size("vocab_size"), c_.hidden = in.size("hidden_size"), c_.layers = in.size("num_hidden_layers");
  c_.heads = in.size("num_heads"), c_.width = in.size("head_dim"), c_.states = in.size("state_size");
  c_.groups = in.size("n_groups"), c_.taps = in.integer("conv_kernel");
  const auto count = [](int64_t n) { return std::to_string(n); };
  const int64_t expanded = in.size("expand") * c_.hidden;
  need(c_.inner() == expanded, "num_heads x head_dim is " + count(c_.inner()) + ", and expand x hidden_size is " +
                                   count(expanded) + "; they must be equal");
  need(c_.heads % c_.groups == 0,
       "num_heads is " + count(c_.heads) + "; it must be a multiple of n_groups, " + count(c_.groups));
  c_.eps = in.real("layer_norm_epsilon");
  need(c_.eps > 0, "layer_norm_epsilon must be above 0 (1e-5 is usual)");
  c_.dt_min = in.real("time_step_min"), c_.dt_max = in.real("time_step_max"), c_.dt_floor = in.real("time_step_floor");
  need(c_.dt_min > 0, "time_step_min must be above 0 (0.001 is usual)");
  need(c_.dt_max >= c_.dt_min, "time_step_max must not be below time_step_min");
  need(c_.dt_floor > 0, "time_step_floor must be above 0 (0.0001 is usual)");
  c_.low = 0.0, c_.high = std::numeric_limits<double>::infinity();
  if (in.given("time_step_limit")) {
    const std::vector<double> limits = in.reals("time_step_limit");
    need(limits.size() == 2, "time_step_limit has " + count(static_cast<int64_t>(limits.size())) +
                                 " numbers; give two, the shortest and the longest time step");
    need(limits[0] >= 0 && limits[1] > limits[0], "time_step_limit is " + model::number(limits[0]) + " to " +
                                                      model::number(limits[1]) +
                                                      "; give two numbers from 0 on, the smaller one first");
    c_.low = limits[0];
    if (limits[1] < std::numeric_limits<float>::max()) c_.high = limits[1];
  }
  c_.bias = in.flag("use_bias"), c_.conv_bias = in.flag("use_conv_bias"), c_.tied = in.flag("tie_word_embeddings");
  c_.hugging_face = in.text("init") == "huggingface";
  c_.std = in.real_or("initializer_range", c_.hugging_face ? 0.1 : 0.02);
  c_.rescale = in.given("rescale_prenorm_residual") ? in.flag("rescale_prenorm_residual") : !c_.hugging_face;
}

// In every block matrices come first, then vectors without weight decay, then parameters that stay f32, so that each
// kind is one run of elements. The ids of biases that the model does not have are 0.
struct Mamba2::Weights {
  eng_id in_proj, out_proj, conv, norm, conv_bias, gated, in_bias, out_bias, a_log, d, dt_bias;

  // Calls f(id, name, dims, flags, init) for each parameter that the model has, in this order.
  template <class F>
  void each(const Config2& c, F f) {
    constexpr uint32_t free = ENG_PARAM_NO_DECAY, state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
    const int64_t inner = c.inner(), convolved = c.convolved(), columns = inner + convolved + c.heads;
    const double depth = c.rescale ? std::sqrt(static_cast<double>(c.layers)) : 1.0;
    const Init rates = c.hugging_face ? Init{MAMBA_OP_INIT_A_LOG, {{"states", c.heads, 0.0}}}
                                      : Init{MAMBA_OP_INIT_LOG_UNIFORM, {{"low", 0, 1.0}, {"high", 0, 16.0}}};
    f(in_proj, "mixer.in_proj.weight", {columns, c.hidden}, 0, c.hugging_face ? normal(c.std) : by_inputs(c.hidden));
    f(out_proj, "mixer.out_proj.weight", {c.hidden, inner}, 0, by_inputs(inner, depth));
    f(conv, "mixer.conv1d.weight", {convolved, 1, c.taps}, 0, by_inputs(c.taps));
    f(norm, "norm.weight", {c.hidden}, free, constant(1.0));
    if (c.conv_bias)
      f(conv_bias, "mixer.conv1d.bias", {convolved}, free, c.hugging_face ? constant(0.0) : by_inputs(c.taps));
    f(gated, "mixer.norm.weight", {inner}, free, constant(1.0));
    if (c.bias) {
      f(in_bias, "mixer.in_proj.bias", {columns}, free, constant(0.0));
      f(out_bias, "mixer.out_proj.bias", {c.hidden}, free, constant(0.0));
    }
    f(a_log, "mixer.A_log", {c.heads}, state, rates);
    f(d, "mixer.D", {c.heads}, state, constant(1.0));
    f(dt_bias, "mixer.dt_bias", {c.heads}, state,
      Init{MAMBA_OP_INIT_DT_BIAS,
           {{"low", 0, std::log(c.dt_min)}, {"high", 0, std::log(c.dt_max)}, {"floor", 0, c.dt_floor}}});
  }
};

eng_model_info Mamba2::describe() const {
  return info_of(c_);
}

void Mamba2::declare(eng_build* b) const {
  declare_blocks<Weights>(b, c_);
}

eng_id Mamba2::layer(eng_build* b, const Weights& w, eng_id h) const {
  const eng_id n = eng_rms_norm(b, h, w.norm, c_.eps);        // (B, T, D)
  const eng_id all = eng_linear(b, n, w.in_proj, w.in_bias);  // (B, T, E + C + H) = [z | x B C | dt]
  const int64_t sizes[2] = {c_.inner(), c_.convolved() + c_.heads};
  eng_id part[2] = {0, 0};  // (B, T, E) and (B, T, C + H)
  eng_split(b, all, 2, 2, sizes, part);
  const eng_id segments = eng_offered(b, "segments");  // (B, T)
  const uint32_t more = segments ? 1 : 0;
  const eng_id conv_in[4] = {part[1], w.conv, w.conv_bias, segments};
  const eng_id xbc = eng_emit1(b, MAMBA_OP_CONV, conv_in, 3 + more, nullptr, 0);  // (B, T, C)
  const eng_attr scan[4] = {
      {"groups", c_.groups, 0}, {"states", c_.states, 0}, {"low", 0, c_.low}, {"high", 0, c_.high}};
  const eng_id in[6] = {xbc, part[1], w.a_log, w.d, w.dt_bias, segments};
  const eng_id y = eng_emit1(b, MAMBA_OP_SSD, in, 5 + more, scan, 4);  // (B, T, E)
  const eng_attr gated[2] = {{"groups", c_.groups, 0}, {"eps", 0, c_.eps}};
  const eng_id norm_in[3] = {y, part[0], w.gated};
  const eng_id out = eng_emit1(b, MAMBA_OP_GATED_NORM, norm_in, 3, gated, 2);  // (B, T, E)
  return eng_add(b, eng_linear(b, out, w.out_proj, w.out_bias), h);            // (B, T, D)
}

std::vector<model::Signature> Mamba2::templates() const {
  return signatures_of<Weights>(c_);
}

eng_id Mamba2::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl != model::layer_template) return trace_ends(b, tmpl, params, in, c_.eps);
  return layer(b, taken<Weights>(c_, params), in[0]);
}

}  // namespace mamba
