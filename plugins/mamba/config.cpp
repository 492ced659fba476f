// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "../common/call.hpp"

namespace mamba {
namespace {

[[noreturn]] void invalid(const std::string& text) {
  throw cpu::Error{ENG_INVALID, text};
}

// The options with failures thrown.
struct Reader {
  const eng_options* options;
  bool given(const char* key) const { return options->is_set(options, key) != 0; }
  template <class T>
  T get(eng_status (*read)(const eng_options*, const char*, T*, eng_error*), const char* key) const {
    T value{};
    if (eng_status s = read(options, key, &value, nullptr)) throw cpu::Error{s, std::string("no option ") + key};
    return value;
  }
  bool flag(const char* key) const { return get<int32_t>(options->get_bool, key) != 0; }
  int64_t whole(const char* key) const { return get<int64_t>(options->get_int, key); }
  std::string text(const char* key) const { return get<const char*>(options->get_string, key); }
  double real(const char* key) const {
    const double value = get<double>(options->get_float, key);
    if (!std::isfinite(value)) invalid(std::string(key) + " must be a finite number");
    return value;
  }
};

void need(bool right, const char* key, const std::string& rule) {
  if (!right) invalid(std::string(key) + " " + rule);
}

}  // namespace

Config read_config(const eng_options* options) {
  const Reader in{options};
  Config c{};
  c.vocabulary = in.whole("vocab_size");
  c.hidden = in.whole("hidden_size");
  c.layers = in.whole("num_hidden_layers");
  c.states = in.whole("state_size");
  c.taps = in.whole("conv_kernel");
  // Truncated, as mamba_ssm and transformers do.
  c.inner = in.given("intermediate_size") ? in.whole("intermediate_size")
                                          : static_cast<int64_t>(in.real("expand") * static_cast<double>(c.hidden));
  c.rank = in.given("time_step_rank") ? in.whole("time_step_rank") : (c.hidden + 15) / 16;
  for (auto [key, value] : {std::pair{"vocab_size", c.vocabulary},
                            {"hidden_size", c.hidden},
                            {"num_hidden_layers", c.layers},
                            {"state_size", c.states},
                            {"time_step_rank", c.rank}})
    need(value >= 1, key, "is " + std::to_string(value) + "; it must be at least 1");
  need(c.inner >= 1, in.given("intermediate_size") ? "intermediate_size" : "expand",
       "gives " + std::to_string(c.inner) + " channels; take more");
  need(c.taps >= 2 && c.taps <= 4, "conv_kernel", "is " + std::to_string(c.taps) + "; it must be 2, 3 or 4");
  need(c.states <= 256, "state_size", "is " + std::to_string(c.states) + "; it must be at most 256");
  c.eps = in.real("layer_norm_epsilon");
  need(c.eps > 0, "layer_norm_epsilon", "must be above 0 (1e-5 is usual)");
  c.dt_scale = in.real("time_step_scale"), c.dt_min = in.real("time_step_min"), c.dt_max = in.real("time_step_max");
  c.dt_floor = in.real("time_step_floor");
  need(c.dt_min > 0, "time_step_min", "must be above 0 (0.001 is usual)");
  need(c.dt_max >= c.dt_min, "time_step_max", "must not be below time_step_min");
  need(c.dt_floor > 0, "time_step_floor", "must be above 0 (0.0001 is usual)");
  c.dt_constant = in.text("time_step_init_scheme") == "constant";
  c.bias = in.flag("use_bias"), c.conv_bias = in.flag("use_conv_bias"), c.tied = in.flag("tie_word_embeddings");
  c.hugging_face = in.text("init") == "huggingface";
  c.std = in.given("initializer_range") ? in.real("initializer_range") : c.hugging_face ? 0.1 : 0.02;
  c.rescale = in.given("rescale_prenorm_residual") ? in.flag("rescale_prenorm_residual") : !c.hugging_face;
  return c;
}

}  // namespace mamba
