// SPDX-License-Identifier: Apache-2.0
// Granite 4 (IBM 2025), the models without experts.
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
  c.layers.assign(static_cast<size_t>(d.layers), mixes | feeds);
  if (in.given("layer_types")) c.layers = read_types(in, "layer_types", d.layers, feeds);
  c.mixer = read_mixer(in, d);
  return c;
}

}  // namespace hybrid
