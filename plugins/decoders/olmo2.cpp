// SPDX-License-Identifier: Apache-2.0
// OLMo 2 (OLMo Team 2024): norms behind the sublayers, and of all queries and all keys.
#include "models.hpp"

namespace decoders {

decoder::Config read_olmo2(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, false);
  c.norms = decoder::Norms::behind_sublayer;
  c.attention_norm = "post_attention_layernorm";
  c.ffn_norm = "post_feedforward_layernorm";
  c.query_norm = "self_attn.q_norm";
  c.key_norm = "self_attn.k_norm";
  return c;
}

}  // namespace decoders
