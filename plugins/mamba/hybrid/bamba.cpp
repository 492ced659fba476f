// SPDX-License-Identifier: Apache-2.0
// Bamba (IBM, Princeton, UIUC 2024).
#include <cmath>

#include "options.hpp"

namespace hybrid {

Config read_bamba(const model::Reader& in) {
  Config c{};
  decoder::Config& d = c.decoder;
  d = decoder::read_relative(in, 0.5, 0, in.integer("num_key_value_heads"));
  if (const int64_t turned = in.integer_or("attn_rotary_emb", d.turned); turned != d.turned)
    model::invalid("attn_rotary_emb is " + std::to_string(turned) + "; half of each head is turned, that is " +
                   std::to_string(d.turned) + " channels");
  const bool bias = in.flag("attention_bias"), mlp = in.flag("mlp_bias");
  decoder::name_maps(d, bias, bias, mlp);
  d.maps[decoder::gate].name = "feed_forward.gate_proj";
  d.maps[decoder::up].name = "feed_forward.up_proj";
  d.maps[decoder::down].name = "feed_forward.down_proj";
  d.ffn_norm = "pre_ff_layernorm";
  d.final_norm = "final_layernorm";
  c.mixer = read_mixer(in, d);
  c.mixer_name = "mamba";
  c.layers.assign(static_cast<size_t>(d.layers), mixes | feeds);
  if (!in.given("attn_layer_indices")) return c;
  for (const double index : in.reals("attn_layer_indices")) {
    if (index < 0 || index >= static_cast<double>(d.layers) || index != std::floor(index))
      model::invalid("attn_layer_indices holds " + model::number(index) +
                     "; every number must be that of a layer, 0 to " + std::to_string(d.layers - 1));
    c.layers[static_cast<size_t>(index)] = attends | feeds;
  }
  return c;
}

}  // namespace hybrid
