// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023).
#include "models.hpp"

namespace decoders {

decoder::Config read_gpt_neox(const model::Reader& in) {
  decoder::Config c = decoder::read_sizes(in, "intermediate_size");
  c.act = in.activation("hidden_act");
  c.eps = in.real("layer_norm_eps");
  decoder::read_init(in, c);
  decoder::read_rope(in, c, in.real("rotary_pct"));
  const bool bias = in.flag("attention_bias");
  c.maps = {{{"attention.query_key_value", bias},
             {},
             {},
             {"attention.dense", bias},
             {},
             {"mlp.dense_h_to_4h", true},
             {"mlp.dense_4h_to_h", true}}};
  c.body = "gpt_neox.";
  c.words = "embed_in";
  c.head = "embed_out";
  c.layer_norm = true;
  c.parallel = in.flag("use_parallel_residual");
  c.attention_norm = "input_layernorm";
  c.ffn_norm = "post_attention_layernorm";
  c.final_norm = "final_layer_norm";
  return c;
}

}  // namespace decoders
