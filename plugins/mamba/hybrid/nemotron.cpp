// SPDX-License-Identifier: Apache-2.0
// Nemotron-H (NVIDIA 2025), with experts and without. Attention has no positions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "options.hpp"

namespace hybrid {
namespace {

uint32_t part_of(const std::string& type) {
  if (type == "M" || type == "linear_attention" || type == "mamba") return mixes;
  if (type == "*" || type == "full_attention" || type == "attention") return attends;
  if (type == "-" || type == "mlp") return feeds;
  if (type == "E" || type == "moe") return routes;
  return 0;
}

std::vector<uint32_t> read_layers(const model::Reader& in) {
  std::vector<uint32_t> by_list, by_pattern;
  if (in.given("layers_block_type"))
    for (const std::string& type : in.texts("layers_block_type")) {
      by_list.push_back(part_of(type));
      if (!by_list.back() || type.size() == 1)
        model::invalid("layers_block_type holds '" + type +
                       "'; every entry must be linear_attention, full_attention, mlp or moe");
    }
  if (in.given("hybrid_override_pattern"))
    for (const char letter : in.text("hybrid_override_pattern")) {
      by_pattern.push_back(part_of(std::string(1, letter)));
      if (!by_pattern.back())
        model::invalid(std::string("hybrid_override_pattern holds '") + letter +
                       "'; every letter must be M, *, - or E");
    }
  if (by_list.empty() && by_pattern.empty())
    model::invalid(
        "hybrid_override_pattern is missing; give a letter for each layer: M, *, - or E (for example \"M-M*-\")");
  if (!by_list.empty() && !by_pattern.empty() && by_list != by_pattern)
    model::invalid("hybrid_override_pattern and layers_block_type name other layers; remove one of them");
  return by_list.empty() ? by_pattern : by_list;
}

void read_experts(const model::Reader& in, bool bias, decoder::Experts& e) {
  e.count = in.size("n_routed_experts");
  decoder::read_choice(in, "n_routed_experts", e);
  e.width = in.size("moe_intermediate_size"), e.shared = in.size("moe_shared_expert_intermediate_size");
  e.latent = in.integer_or("moe_latent_size", 0);
  e.normalise = in.flag("norm_topk_prob"), e.scale = in.real("routed_scaling_factor");
  e.groups = in.size("n_group"), e.chosen_groups = in.size("topk_group");
  const auto text = [](int64_t n) { return std::to_string(n); };
  if (e.count % e.groups != 0 || (e.groups > 1 && e.count / e.groups < 2))
    model::invalid("n_group is " + text(e.groups) + ", and there are " + text(e.count) +
                   " experts (n_routed_experts); they must be equal groups of at least two");
  if (e.chosen_groups > e.groups || e.chosen > e.count / e.groups * e.chosen_groups)
    model::invalid("topk_group is " + text(e.chosen_groups) + " of " + text(e.groups) + " groups (n_group) of " +
                   text(e.count / e.groups) + " experts, of which num_experts_per_tok asks for " + text(e.chosen) +
                   "; change one of them");
  e.squared = true;
  e.router = "mixer.gate.weight", e.correction = "mixer.gate.e_score_correction_bias";
  e.up = "mixer.experts.up_proj.weight", e.down = "mixer.experts.down_proj.weight";
  e.shared_up = {"mixer.shared_experts.up_proj", bias}, e.shared_down = {"mixer.shared_experts.down_proj", bias};
  if (e.latent) e.to_latent = {"mixer.fc1_latent_proj", bias}, e.from_latent = {"mixer.fc2_latent_proj", bias};
}

}  // namespace

Config read_nemotron(const model::Reader& in) {
  Config c{};
  decoder::Config& d = c.decoder;
  c.layers = read_layers(in);
  d.layers = static_cast<int64_t>(c.layers.size());
  if (const int64_t given = in.integer_or("num_hidden_layers", d.layers); given != d.layers)
    model::invalid("num_hidden_layers is " + std::to_string(given) + ", and the pattern has " +
                   std::to_string(d.layers) + " layers; remove num_hidden_layers, or change one of them");
  d.vocabulary = in.size("vocab_size");
  d.hidden = d.word_width = in.size("hidden_size");
  d.ffn = in.size("intermediate_size");
  d.heads = in.size("num_attention_heads");
  d.max_positions = in.size("max_position_embeddings");
  decoder::read_grouped_heads(in, d, in.size("head_dim"), in.integer("num_key_value_heads"));
  d.tied = in.flag("tie_word_embeddings");
  d.eps = in.real("layer_norm_epsilon");
  d.init_std = d.init_out_std = in.real("initializer_range");
  d.act = ENG_ACT_RELU;
  const bool mlp = in.flag("mlp_bias");
  d.maps = {{{"mixer.q_proj", false},
             {"mixer.k_proj", false},
             {"mixer.v_proj", false},
             {"mixer.o_proj", false},
             {},
             {"mixer.up_proj", mlp},
             {"mixer.down_proj", mlp}}};
  if (std::count(c.layers.begin(), c.layers.end(), routes)) read_experts(in, mlp, c.experts);
  d.body = "backbone.";
  d.words = "embeddings";
  d.attention_norm = d.ffn_norm = "norm";
  d.final_norm = "norm_f";
  c.rotary = false;
  c.squared = true;
  c.wide = in.flag("residual_in_fp32");
  if (in.flag("rescale_prenorm_residual")) c.out_divisor = std::sqrt(static_cast<double>(d.layers));

  mamba::Mixer& m = c.mixer;
  m.heads = in.size("mamba_num_heads"), m.width = in.size("mamba_head_dim"), m.states = in.size("ssm_state_size");
  m.groups = in.size("n_groups"), m.taps = in.integer("conv_kernel"), m.eps = d.eps;
  check_groups(m, "mamba_num_heads", "n_groups");
  m.dt_min = in.real("time_step_min"), m.dt_max = in.real("time_step_max"), m.dt_floor = in.real("time_step_floor");
  if (m.dt_max < m.dt_min) model::invalid("time_step_max must not be below time_step_min");
  // transformers takes the shortest initial time step for the limit, and no other one.
  mamba::read_limits(in, m);
  if (m.low != 0.0 || m.high != std::numeric_limits<double>::infinity())
    model::invalid("time_step_limit is " + model::number(m.low) + " to " + model::number(m.high) +
                   "; time_step_min is the only limit here, as in transformers: remove time_step_limit");
  m.low = m.dt_min;
  m.bias = m.out_bias = in.flag("use_bias"), m.conv_bias = in.flag("use_conv_bias");
  c.mixer_name = "mixer";
  return c;
}

}  // namespace hybrid
