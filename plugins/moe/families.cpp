// SPDX-License-Identifier: Apache-2.0
// Mixtral (Jiang et al. 2024), Qwen2-MoE (Yang et al. 2024), Qwen3-MoE (Yang et al. 2025) and OLMoE (Muennighoff et al.
// 2024) by their options.
#include <cmath>
#include <string>

#include "model.hpp"

namespace moe {
namespace {

// Options that are the same in every family; `count` and `ffn`: the keys of the number of experts and of the width of
// feed-forward layers.
Config read(const model::Reader& in, const char* count, const char* ffn, int64_t kv_heads, bool bias, bool out_bias,
            const char* block) {
  Config out{decoder::read_relative(in, 1.0, 0, kv_heads, ffn), {}};
  decoder::name_maps(out.decoder, bias, out_bias, false);
  decoder::Experts& e = out.experts;
  e.count = in.size(count), e.width = out.decoder.ffn;
  decoder::read_choice(in, count, e);
  decoder::read_terms(in, e);
  const std::string prefix = block;
  e.router = prefix + ".gate.weight";
  e.up = prefix + ".experts.gate_up_proj.weight", e.down = prefix + ".experts.down_proj.weight";
  return out;
}

// All feed-forward layers are mixtures: the maps of others have no names.
void leave_no_dense(decoder::Config& c) {
  for (size_t m = decoder::gate; m < decoder::map_count; ++m) c.maps[m] = {};
}

// The layers with experts, by decoder_sparse_step and mlp_only_layers.
void read_sparse_layers(const model::Reader& in, Config& c) {
  decoder::Config& d = c.decoder;
  c.experts.width = in.size("moe_intermediate_size");
  const int64_t step = in.size("decoder_sparse_step");
  std::vector<bool> sparse;
  for (int64_t i = 0; i < d.layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (in.given("mlp_only_layers"))
    for (const double layer : in.reals("mlp_only_layers")) {
      if (layer < 0 || layer >= static_cast<double>(d.layers) || layer != std::floor(layer))
        model::invalid("mlp_only_layers holds " + model::number(layer) +
                       "; every number must be that of a layer, 0 to " + std::to_string(d.layers - 1));
      sparse[static_cast<size_t>(layer)] = false;
    }
  const auto n = std::count(sparse.begin(), sparse.end(), true);
  if (n == 0)
    model::invalid("no layer has experts: decoder_sparse_step is " + std::to_string(step) + ", there are " +
                   std::to_string(d.layers) +
                   " layers, and mlp_only_layers takes experts from those that it lists; change one of them");
  if (n == d.layers) return leave_no_dense(d);
  d.own = sparse;
}

}  // namespace

Config read_mixtral(const model::Reader& in) {
  Config c = read(in, "num_local_experts", "intermediate_size", in.integer("num_key_value_heads"), false, false,
                  "block_sparse_moe");
  leave_no_dense(c.decoder);
  c.experts.normalise = true;
  decoder::read_window(in, c.decoder);
  return c;
}

Config read_qwen2_moe(const model::Reader& in) {
  Config c = read(in, "num_experts", "intermediate_size", in.integer("num_key_value_heads"), in.flag("qkv_bias"), false,
                  "mlp");
  read_sparse_layers(in, c);
  decoder::Experts& e = c.experts;
  e.normalise = in.flag("norm_topk_prob");
  e.shared = in.size("shared_expert_intermediate_size");
  e.shared_gate = {"mlp.shared_expert.gate_proj"};
  e.shared_up = {"mlp.shared_expert.up_proj"};
  e.shared_down = {"mlp.shared_expert.down_proj"};
  e.shared_router = "mlp.shared_expert_gate";
  return c;
}

Config read_qwen3_moe(const model::Reader& in) {
  const bool bias = in.flag("attention_bias");
  Config c = read(in, "num_experts", "intermediate_size", in.integer("num_key_value_heads"), bias, bias, "mlp");
  read_sparse_layers(in, c);
  c.experts.normalise = in.flag("norm_topk_prob");
  c.decoder.query_norm = "self_attn.q_norm";
  c.decoder.key_norm = "self_attn.k_norm";
  c.decoder.norm_by_head = true;
  return c;
}

Config read_olmoe(const model::Reader& in) {
  const bool bias = in.flag("attention_bias");
  Config c = read(in, "num_experts", "intermediate_size", 0, bias, bias, "mlp");
  leave_no_dense(c.decoder);
  c.experts.normalise = in.flag("norm_topk_prob");
  c.decoder.query_norm = "self_attn.q_norm";
  c.decoder.key_norm = "self_attn.k_norm";
  return c;
}

}  // namespace moe
