// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <string>

#include "../common/model.hpp"

namespace mamba {
namespace {

void need(bool right, const char* key, const std::string& rule) {
  if (!right) model::invalid(std::string(key) + " " + rule);
}

}  // namespace

Config read_config(const eng_options* options, eng_error* error, bool normed) {
  const model::Reader in(options, error);
  Config c{};
  c.vocabulary = in.size("vocab_size");
  c.hidden = in.size("hidden_size");
  c.layers = in.size("num_hidden_layers");
  c.states = in.size("state_size");
  c.taps = in.integer("conv_kernel");
  // Truncated, as mamba_ssm and transformers do. That of models with inner norms is a whole number.
  const auto expanded = [&] {
    return normed ? in.size("expand") * c.hidden
                  : static_cast<int64_t>(in.real("expand") * static_cast<double>(c.hidden));
  };
  c.inner = in.given("intermediate_size") ? in.integer("intermediate_size") : expanded();
  c.rank = in.at_least_one("time_step_rank", in.integer_or("time_step_rank", (c.hidden + 15) / 16));
  need(c.inner >= 1, in.given("intermediate_size") ? "intermediate_size" : "expand",
       "gives " + std::to_string(c.inner) + " channels; take more");
  need(c.taps >= 2 && c.taps <= 4, "conv_kernel", "is " + std::to_string(c.taps) + "; it must be 2, 3 or 4");
  need(c.states <= 256, "state_size", "is " + std::to_string(c.states) + "; it must be at most 256");
  c.eps = in.real("layer_norm_epsilon");
  need(c.eps > 0, "layer_norm_epsilon", "must be above 0 (1e-5 is usual)");
  c.inner_eps = normed ? in.real("mixer_rms_eps") : 0.0;
  need(!normed || c.inner_eps > 0, "mixer_rms_eps", "must be above 0 (1e-6 is usual)");
  c.dt_scale = in.real("time_step_scale"), c.dt_min = in.real("time_step_min"), c.dt_max = in.real("time_step_max");
  c.dt_floor = in.real("time_step_floor");
  need(c.dt_min > 0, "time_step_min", "must be above 0 (0.001 is usual)");
  need(c.dt_max >= c.dt_min, "time_step_max", "must not be below time_step_min");
  need(c.dt_floor > 0, "time_step_floor", "must be above 0 (0.0001 is usual)");
  c.dt_constant = in.text("time_step_init_scheme") == "constant";
  c.bias = in.flag("use_bias"), c.conv_bias = in.flag("use_conv_bias"), c.tied = in.flag("tie_word_embeddings");
  c.wide = in.flag("residual_in_fp32");
  c.hugging_face = in.text("init") == "huggingface";
  c.std = in.real_or("initializer_range", c.hugging_face ? 0.1 : 0.02);
  c.rescale = in.given("rescale_prenorm_residual") ? in.flag("rescale_prenorm_residual") : !c.hugging_face;
  return c;
}

}  // namespace mamba
