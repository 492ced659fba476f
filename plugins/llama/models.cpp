// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

namespace llama {
namespace {

// The options and names that the families here share.
decoder::Config read_common(const model::Reader& in) {
  decoder::Config c = decoder::read_sizes(in, "intermediate_size");
  decoder::read_grouped_heads(in, c);
  c.act = in.activation("hidden_act");
  decoder::read_rms_norm(in, c);
  decoder::read_init(in, c);
  decoder::read_rope(in, c);
  c.attention_norm = "input_layernorm";
  c.ffn_norm = "post_attention_layernorm";
  c.final_norm = "norm";
  return c;
}

void name_maps(decoder::Config& c, bool qkv_bias, bool o_bias, bool mlp_bias) {
  c.maps = {{{"self_attn.q_proj", qkv_bias},
             {"self_attn.k_proj", qkv_bias},
             {"self_attn.v_proj", qkv_bias},
             {"self_attn.o_proj", o_bias},
             {"mlp.gate_proj", mlp_bias},
             {"mlp.up_proj", mlp_bias},
             {"mlp.down_proj", mlp_bias}}};
}

}  // namespace

decoder::Config read_llama(const model::Reader& in) {
  decoder::Config c = read_common(in);
  const bool attention = in.flag("attention_bias"), mlp = in.flag("mlp_bias");
  name_maps(c, attention, attention, mlp);
  return c;
}

// Qwen2 and Qwen2.5 (Yang et al. 2024).
decoder::Config read_qwen2(const model::Reader& in) {
  decoder::Config c = read_common(in);
  name_maps(c, true, false, false);
  return c;
}

}  // namespace llama
