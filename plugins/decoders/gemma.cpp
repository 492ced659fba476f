// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024) and the language model of Gemma 3 (2025): four norms in each layer, which multiply by 1 +
// their weight, scaled embeddings, a window in some layers.
#include <cmath>

#include "models.hpp"

namespace decoders {
namespace {

decoder::Config read_gemma(const model::Reader& in) {
  decoder::Config c = decoder::read_sizes(in, "intermediate_size");
  decoder::read_grouped_heads(in, c, in.integer("head_dim"), in.integer("num_key_value_heads"));
  c.act = in.activation("hidden_activation");
  decoder::read_rms_norm(in, c);
  decoder::read_init(in, c);
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, false);
  c.norms = decoder::Norms::around;
  c.plus_one = true;
  c.attention_norm = "input_layernorm";
  c.behind_attention_norm = "post_attention_layernorm";
  c.ffn_norm = "pre_feedforward_layernorm";
  c.behind_ffn_norm = "post_feedforward_layernorm";
  c.final_norm = "norm";
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  c.embedding_scale_rounded = true;
  c.attention_scale = 1.0 / std::sqrt(static_cast<double>(in.size("query_pre_attn_scalar")));
  return c;
}

// True for each layer with the window. Every `interval`-th layer has none.
std::vector<bool> all_but(int64_t layers, int64_t interval) {
  std::vector<bool> out;
  for (int64_t layer = 1; layer <= layers; ++layer) out.push_back(layer % interval != 0);
  return out;
}

}  // namespace

decoder::Config read_gemma2(const model::Reader& in) {
  decoder::Config c = read_gemma(in);
  decoder::read_window(in, c, in.integer("sliding_window"), true, all_but(c.layers, 2));
  decoder::read_rope(in, c);
  c.score_cap = in.real_or("attn_logit_softcapping", 0.0);
  c.logit_cap = in.real_or("final_logit_softcapping", 0.0);
  return c;
}

decoder::Config read_gemma3(const model::Reader& in) {
  decoder::Config c = read_gemma(in);
  c.query_norm = "self_attn.q_norm";
  c.key_norm = "self_attn.k_norm";
  c.norm_by_head = true;
  decoder::read_window(in, c, in.integer("sliding_window"), true,
                       all_but(c.layers, in.integer_or("sliding_window_pattern", 6)));
  decoder::read_rope(in, c);
  c.window_rope = c.rope;  // which is never scaled
  c.window_rope->type = decoder::RopeType::plain;
  c.window_rope->theta = in.real("rope_local_base_freq");
  return c;
}

}  // namespace decoders
