// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024), Qwen3-MoE (Yang et al. 2025) and OLMoE (Muennighoff et al. 2024) by their options.
#include "model.hpp"

namespace moe {
namespace {

// Options that are the same in every family; `count` and `ffn`: the keys of the experts' number and width.
Config read(const model::Reader& in, const char* count, const char* ffn, int64_t kv_heads, bool bias) {
  Config out{decoder::read_relative(in, 1.0, 0, kv_heads, ffn), {}};
  decoder::name_maps(out.decoder, bias, bias, false);
  for (size_t m = 4; m < decoder::map_count; ++m) out.decoder.maps[m] = {};  // those of the feed-forward layer
  Experts& e = out.experts;
  e.count = in.size(count), e.chosen = in.size("num_experts_per_tok");
  if (e.chosen > e.count)
    model::invalid("num_experts_per_tok (" + std::to_string(e.chosen) + ") must not be above " + count + " (" +
                   std::to_string(e.count) + "); change one of them");
  e.balance = in.flag("output_router_logits") ? in.real("router_aux_loss_coef") : 0.0;
  e.z = in.real("router_z_loss_coef");
  e.block = "mlp";
  return out;
}

}  // namespace

Config read_mixtral(const model::Reader& in) {
  Config c = read(in, "num_local_experts", "intermediate_size", in.integer("num_key_value_heads"), false);
  c.experts.normalise = true;
  c.experts.block = "block_sparse_moe";
  decoder::read_window(in, c.decoder);
  return c;
}

Config read_qwen3_moe(const model::Reader& in) {
  const bool bias = in.flag("attention_bias");
  Config c = read(in, "num_experts", "moe_intermediate_size", in.integer("num_key_value_heads"), bias);
  c.experts.normalise = in.flag("norm_topk_prob");
  c.decoder.query_norm = "self_attn.q_norm";
  c.decoder.key_norm = "self_attn.k_norm";
  c.decoder.norm_by_head = true;
  return c;
}

Config read_olmoe(const model::Reader& in) {
  Config c = read(in, "num_experts", "intermediate_size", 0, in.flag("attention_bias"));
  c.experts.normalise = in.flag("norm_topk_prob");
  c.decoder.query_norm = "self_attn.q_norm";
  c.decoder.key_norm = "self_attn.k_norm";
  return c;
}

}  // namespace moe
