// SPDX-License-Identifier: Apache-2.0
// Granite 4 (IBM 2025), with experts and without.
#include "options.hpp"

namespace hybrid {

Config read_granite(const model::Reader& in) {
  Config c{};
  decoder::Config& d = c.decoder;
  d = decoder::read_sizes(in, "shared_intermediate_size");
  decoder::read_grouped_heads(in, d);
  d.act = in.activation("hidden_act");
  decoder::read_rms_norm(in, d);
  decoder::read_init(in, d);
  c.rotary = in.given("position_embedding_type") && in.text("position_embedding_type") == "rope";
  if (c.rotary) decoder::read_rope(in, d);
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(d, bias, bias, false);
  d.maps[decoder::gate].name = "shared_mlp.gate_proj";
  d.maps[decoder::up].name = "shared_mlp.up_proj";
  d.maps[decoder::down].name = "shared_mlp.output_linear";
  d.attention_norm = "input_layernorm";
  d.ffn_norm = "post_attention_layernorm";
  d.final_norm = "norm";
  d.embedding_scale = in.real("embedding_multiplier");
  d.attention_scale = in.real("attention_multiplier");
  d.residual_scale = in.real("residual_multiplier");
  d.logit_scale = 1.0 / in.real("logits_scaling");
  c.mixer_name = "mamba";
  decoder::Experts& e = c.experts;
  e.count = in.integer("num_local_experts");
  if (e.count > 0) {
    decoder::read_choice(in, "num_local_experts", e);
    decoder::read_terms(in, e);
    e.width = in.size("intermediate_size"), e.normalise = true;
    e.router = "block_sparse_moe.router.layer.weight";
    e.up = "block_sparse_moe.input_linear.weight", e.down = "block_sparse_moe.output_linear.weight";
  }
  const uint32_t more = e.count > 0 ? feeds | routes : feeds;
  c.layers.assign(static_cast<size_t>(d.layers), mixes | more);
  if (in.given("layer_types")) c.layers = read_types(in, "layer_types", d.layers, more);
  c.mixer = read_mixer(in, d);
  return c;
}

}  // namespace hybrid
