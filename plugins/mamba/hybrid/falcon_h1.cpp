// SPDX-License-Identifier: Apache-2.0
// Falcon-H1 (TII 2025): attention and a mixer side by side in every layer, factors as in maximal update
// parametrisation.
#include <algorithm>
#include <cmath>

#include "options.hpp"

namespace hybrid {
namespace {

// The list `key` of so many factors; ones if it is absent.
std::vector<double> read_factors(const model::Reader& in, const char* key, size_t n) {
  if (!in.given(key)) return std::vector<double>(n, 1.0);
  std::vector<double> out = in.reals(key);
  if (out.size() != n)
    model::invalid(std::string(key) + " has " + std::to_string(out.size()) + " numbers; give " + std::to_string(n));
  return out;
}

}  // namespace

Config read_falcon_h1(const model::Reader& in) {
  Config c{};
  decoder::Config& d = c.decoder;
  d = decoder::read_relative(in, 1.0, 0, in.integer("num_key_value_heads"));
  const bool bias = in.flag("attention_bias"), mlp = in.flag("mlp_bias");
  decoder::name_maps(d, bias, bias, mlp);
  d.maps[decoder::gate].name = "feed_forward.gate_proj";
  d.maps[decoder::up].name = "feed_forward.up_proj";
  d.maps[decoder::down].name = "feed_forward.down_proj";
  d.ffn_norm = "pre_ff_layernorm";
  d.final_norm = "final_layernorm";
  d.embedding_scale = in.real("embedding_multiplier");
  d.logit_scale = in.real("lm_head_multiplier");
  d.attention_scale = in.real("key_multiplier") / std::sqrt(static_cast<double>(d.head_dim));
  c.attention_in = in.real("attention_in_multiplier"), c.attention_out = in.real("attention_out_multiplier");
  c.mixer_out = in.real("ssm_out_multiplier");
  const std::vector<double> ffn_factors = read_factors(in, "mlp_multipliers", 2);
  c.gate = ffn_factors[0], c.down = ffn_factors[1];

  c.mixer = read_mixer(in, d, in.integer_or("mamba_d_ssm", 0));
  c.mixer.out_bias = in.flag("projectors_bias");
  c.mixer.scale = in.real("ssm_in_multiplier");
  const std::vector<double> factors = read_factors(in, "ssm_multipliers", c.mixer.factors.size());
  std::copy(factors.begin(), factors.end(), c.mixer.factors.begin());
  if (!in.flag("mamba_rms_norm"))
    c.mixer.gate = mamba::Gate::alone;
  else if (in.flag("mamba_norm_before_gate"))
    c.mixer.gate = mamba::Gate::behind_norm;
  if (c.mixer.gate == mamba::Gate::behind_norm && c.mixer.groups > 1)
    model::invalid("mamba_norm_before_gate = true with mamba_n_groups = " + std::to_string(c.mixer.groups) +
                   ": a norm of groups before the gate is not supported; set one of them to false or 1");
  c.mixer_name = "mamba";
  c.layers.assign(static_cast<size_t>(d.layers), mixes | attends | feeds);
  return c;
}

}  // namespace hybrid
