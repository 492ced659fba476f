// SPDX-License-Identifier: Apache-2.0
// LLaMA 1, 2, 3 (Touvron et al. 2023) as a list of ops. V vocabulary, H hidden, I feed-forward, D head size, A = heads
// * D, K = kv_heads * D.
#include "model.hpp"

#include <array>
#include <cmath>
#include <string>

#include "../common/model.hpp"

namespace llama {
namespace {

constexpr uint32_t embed_template = 0, layer_template = 1, head_template = 2;
constexpr int64_t most_angles = int64_t{1} << 27;  // values of the table of rotations: a million positions of 128

// The linear maps of a layer in the order of its parameters.
enum Map { q, k, v, o, gate, up, down, map_count };
struct Linear {
  const char* name;
  int64_t rows, columns;  // out, in
  bool bias;
};

std::array<Linear, map_count> layer_maps(const Config& c) {
  const int64_t a = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return {{{"self_attn.q_proj", a, c.hidden, c.attention_bias},
           {"self_attn.k_proj", kv, c.hidden, c.attention_bias},
           {"self_attn.v_proj", kv, c.hidden, c.attention_bias},
           {"self_attn.o_proj", c.hidden, a, c.attention_bias},
           {"mlp.gate_proj", c.ffn, c.hidden, c.mlp_bias},
           {"mlp.up_proj", c.ffn, c.hidden, c.mlp_bias},
           {"mlp.down_proj", c.hidden, c.ffn, c.mlp_bias}}};
}

uint32_t layer_params(const Config& c) {
  return map_count + (c.attention_bias ? 4 : 0) + (c.mlp_bias ? 3 : 0) + 2;
}

}  // namespace

eng_model_info Model::describe() const {
  eng_model_info info{};
  info.vocabulary = c_.vocabulary;
  info.attention_width = c_.heads * c_.head_dim;
  info.layers = c_.layers;
  // Dynamic scaling is made for going beyond the trained length.
  info.max_length = c_.rope.type == RopeType::dynamic ? 0 : c_.max_positions;
  return info;
}

// In every block matrices come first and undecayed vectors last, so that each kind is one run of elements.
void Model::declare(eng_build* b) const {
  const eng_id embeddings = model::matrix(b, "model.embed_tokens.weight", c_.vocabulary, c_.hidden, c_.init_std);
  model::block(b, "embed", embed_template, {embeddings});
  const double out_std = c_.depth_scale ? c_.init_std / std::sqrt(2.0 * static_cast<double>(c_.layers)) : c_.init_std;
  const auto maps = layer_maps(c_);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = "layers." + std::to_string(i), prefix = "model." + block + ".";
    std::vector<eng_id> params;
    for (const Linear& m : maps) {
      const bool into_stream = &m == &maps[o] || &m == &maps[down];
      params.push_back(
          model::matrix(b, prefix + m.name + ".weight", m.rows, m.columns, into_stream ? out_std : c_.init_std));
    }
    for (const Linear& m : maps)
      if (m.bias) params.push_back(model::vector(b, prefix + m.name + ".bias", m.rows, 0.0));
    params.push_back(model::vector(b, prefix + "input_layernorm.weight", c_.hidden, 1.0));
    params.push_back(model::vector(b, prefix + "post_attention_layernorm.weight", c_.hidden, 1.0));
    model::block(b, block, layer_template, params);
  }
  const eng_id out = c_.tied ? embeddings : model::matrix(b, "lm_head.weight", c_.vocabulary, c_.hidden, c_.init_std);
  model::block(b, "head", head_template, {out, model::vector(b, "model.norm.weight", c_.hidden, 1.0)});
}

eng_id Model::embed(eng_build* b, const eng_id* params) const {
  eng_id tokens = 0;
  b->api->batch(b, "tokens", &tokens, nullptr);  // (B, T)
  return eng_embedding(b, tokens, params[0]);    // (B, T, H)
}

eng_id Model::layer(eng_build* b, const eng_id* params, eng_id h) const {
  const auto maps = layer_maps(c_);
  std::array<eng_id, map_count> w, bias{};
  for (eng_id& id : w) id = *params++;
  for (size_t m = 0; m < map_count; ++m)
    if (maps[m].bias) bias[m] = *params++;
  const eng_id input_norm = params[0], post_norm = params[1];
  auto linear = [&](Map m, eng_id x) { return eng_linear(b, x, w[m], bias[m]); };

  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return 0;
  const int64_t length = shape.dims[1];
  if (length > most_angles / c_.head_dim)
    model::invalid("sequence_length = " + std::to_string(length) + ": the table of rotations is limited to 512 MiB, " +
                   std::to_string(most_angles / c_.head_dim) + " positions of heads of " + std::to_string(c_.head_dim) +
                   "; use a shorter sequence");
  const std::vector<float> cos_sin = rope_table(c_.rope, c_.head_dim, length);
  const eng_desc desc = {ENG_F32, 2, {length, c_.head_dim}};
  eng_id table = 0;
  b->api->constant(b, &desc, cos_sin.data(), &table, nullptr);

  const eng_id positions = eng_offered(b, "positions"), segments = eng_offered(b, "segments");  // (B, T)
  const eng_id n1 = eng_rms_norm(b, h, input_norm, c_.eps);                                     // (B, T, H)
  const eng_id query = eng_rope_at(b, linear(q, n1), table, positions, c_.heads);               // (B, T, A)
  const eng_id key = eng_rope_at(b, linear(k, n1), table, positions, c_.kv_heads);              // (B, T, K)
  const eng_id value = linear(v, n1);                                                           // (B, T, K)
  const double scale = 1.0 / std::sqrt(static_cast<double>(c_.head_dim));
  const eng_id mixed = eng_attention_in(b, query, key, value, segments, c_.heads, c_.kv_heads, scale);  // (B, T, A)

  eng_id h1 = 0;
  const eng_id n2 = eng_add_rms_norm(b, linear(o, mixed), h, post_norm, c_.eps, &h1);  // (B, T, H)
  // One call per line: a compiler may evaluate arguments in any order, and the order of the ops fixes the order in
  // which gradients are added.
  const eng_id above = linear(up, n2), open = linear(gate, n2);  // (B, T, I)
  const eng_id inner = eng_gated(b, open, above, c_.act);        // (B, T, I)
  return eng_add(b, linear(down, inner), h1);                    // (B, T, H)
}

eng_id Model::head(eng_build* b, const eng_id* params, eng_id h) const {
  eng_id labels = 0;
  b->api->batch(b, "labels", &labels, nullptr);                           // (B, T)
  const eng_id n = eng_rms_norm(b, h, params[1], c_.eps);                 // (B, T, H)
  const eng_id weights = eng_offered(b, "loss_weights");                  // (B, T)
  return eng_language_loss(b, n, params[0], labels, weights, c_.z_loss);  // (1)
}

std::vector<model::Signature> Model::templates() const {
  return {{1, 0}, {layer_params(c_), 1}, {2, 1}};
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl == embed_template) return embed(b, params);
  return tmpl == layer_template ? layer(b, params, in[0]) : head(b, params, in[0]);
}

}  // namespace llama
