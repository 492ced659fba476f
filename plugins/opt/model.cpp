// SPDX-License-Identifier: Apache-2.0
// OPT (Zhang et al. 2022) as a list of ops. V vocabulary, W width of the embeddings, H hidden, F feed-forward, P
// positions. The layer norm comes before attention and before the feed-forward layer; in the 350M model it comes after
// each residual sum.
#include "model.hpp"

#include <array>
#include <cmath>
#include <string>

namespace opt {
namespace {

constexpr uint32_t embed_template = 0, layer_template = 1, head_template = 2;
constexpr int64_t position_offset = 2;  // position p is row p + 2 of the table
constexpr double eps = 1e-5;

// The linear maps of a layer in the order of its parameters.
enum Map { q, k, v, out, fc1, fc2, map_count };
struct Linear {
  const char* name;
  int64_t rows, columns;  // out, in
};

std::array<Linear, map_count> layer_maps(const Config& c) {
  return {{{"self_attn.q_proj", c.hidden, c.hidden},
           {"self_attn.k_proj", c.hidden, c.hidden},
           {"self_attn.v_proj", c.hidden, c.hidden},
           {"self_attn.out_proj", c.hidden, c.hidden},
           {"fc1", c.ffn, c.hidden},
           {"fc2", c.hidden, c.ffn}}};
}

// Weight and bias of a layer norm, where it has them.
void declare_norm(eng_build* b, const Config& c, const std::string& name, std::vector<eng_id>& params) {
  if (!c.affine) return;
  params.push_back(model::vector(b, name + ".weight", c.hidden, 1.0));
  params.push_back(model::vector(b, name + ".bias", c.hidden, 0.0));
}
struct Norm {
  eng_id weight = 0, bias = 0;
};
Norm take_norm(const Config& c, const eng_id*& params) {
  if (!c.affine) return {};
  const Norm norm = {params[0], params[1]};
  return params += 2, norm;
}

// A factor that is a power of two changes no rounding, whether it comes before a product or after it.
bool exact(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

}  // namespace

eng_model_info Model::describe() const {
  eng_model_info info{};
  info.vocabulary = c_.vocabulary;
  info.attention_width = c_.hidden;
  info.layers = c_.layers;
  info.max_length = c_.max_positions;
  return info;
}

// In every block matrices come first and undecayed vectors last, so that each kind is one run of elements.
void Model::declare(eng_build* b) const {
  const std::string decoder = "model.decoder.";
  const double std = c_.init_std;
  const eng_id words = model::matrix(b, decoder + "embed_tokens.weight", c_.vocabulary, c_.word_width, std);
  std::vector<eng_id> params = {
      words, model::matrix(b, decoder + "embed_positions.weight", c_.max_positions + position_offset, c_.hidden, std)};
  if (c_.projected()) params.push_back(model::matrix(b, decoder + "project_in.weight", c_.hidden, c_.word_width, std));
  model::block(b, "embed", embed_template, params);

  const auto maps = layer_maps(c_);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = "layers." + std::to_string(i), prefix = decoder + block + ".";
    params.clear();
    for (const Linear& m : maps) {
      const bool into_stream = &m == &maps[out] || &m == &maps[fc2];
      params.push_back(
          model::matrix(b, prefix + m.name + ".weight", m.rows, m.columns, into_stream ? c_.init_out_std : std));
    }
    if (c_.bias)
      for (const Linear& m : maps) params.push_back(model::vector(b, prefix + m.name + ".bias", m.rows, 0.0));
    declare_norm(b, c_, prefix + "self_attn_layer_norm", params);
    declare_norm(b, c_, prefix + "final_layer_norm", params);
    model::block(b, block, layer_template, params);
  }

  params = {c_.tied ? words : model::matrix(b, "lm_head.weight", c_.vocabulary, c_.word_width, std)};
  if (c_.projected()) params.push_back(model::matrix(b, decoder + "project_out.weight", c_.word_width, c_.hidden, std));
  if (c_.final_norm) declare_norm(b, c_, decoder + "final_layer_norm", params);
  model::block(b, "head", head_template, params);
}

eng_id Model::embed(eng_build* b, const eng_id* params) const {
  eng_id tokens = 0;
  b->api->batch(b, "tokens", &tokens, nullptr);            // (B, T)
  eng_id h = eng_embedding(b, tokens, params[0]);          // (B, T, W)
  if (c_.projected()) h = eng_linear(b, h, params[2], 0);  // (B, T, H)
  const eng_id positions = eng_offered(b, "positions");    // (B, T)
  return eng_positions_at(b, h, params[1], positions, position_offset);
}

eng_id Model::layer(eng_build* b, const eng_id* params, eng_id h) const {
  std::array<eng_id, map_count> w, bias{};
  for (eng_id& id : w) id = *params++;
  if (c_.bias)
    for (eng_id& id : bias) id = *params++;
  const Norm attention_norm = take_norm(c_, params), final_norm = take_norm(c_, params);
  auto linear = [&](Map m, eng_id x) { return eng_linear(b, x, w[m], bias[m]); };
  auto norm = [&](const Norm& n, eng_id x) { return eng_layer_norm(b, x, n.weight, n.bias, eps); };
  auto add_norm = [&](const Norm& n, eng_id x, eng_id residual, eng_id* sum) {
    return eng_add_layer_norm(b, x, residual, n.weight, n.bias, eps, sum);
  };

  // The query is scaled before the product with the keys, as the model was trained.
  double scale = 1.0 / std::sqrt(static_cast<double>(c_.hidden / c_.heads));
  const eng_id n1 = c_.norm_before ? norm(attention_norm, h) : h;  // (B, T, H)
  eng_id query = linear(q, n1);
  if (!exact(scale)) query = eng_scale(b, query, scale), scale = 1.0;
  const eng_id key = linear(k, n1), value = linear(v, n1);
  const eng_id segments = eng_offered(b, "segments");  // (B, T)
  const eng_id mixed = eng_attention_in(b, query, key, value, segments, c_.heads, c_.heads, scale);

  eng_id h1 = 0, sum = 0;
  const Norm& middle = c_.norm_before ? final_norm : attention_norm;
  eng_id n2 = add_norm(middle, eng_dropout(b, linear(out, mixed), c_.dropout), h, &h1);  // (B, T, H)
  const eng_id inner = c_.act == ENG_ACT_RELU ? eng_linear_relu(b, n2, w[fc1], bias[fc1])
                                              : eng_activation(b, linear(fc1, n2), c_.act);  // (B, T, F)
  const eng_id y = eng_dropout(b, linear(fc2, inner), c_.dropout);                           // (B, T, H)
  return c_.norm_before ? eng_add(b, y, h1) : add_norm(final_norm, y, n2, &sum);
}

eng_id Model::head(eng_build* b, const eng_id* params, eng_id h) const {
  const eng_id words = *params++, project = c_.projected() ? *params++ : 0;
  eng_id labels = 0;
  b->api->batch(b, "labels", &labels, nullptr);  // (B, T)
  if (c_.final_norm) {
    const Norm n = take_norm(c_, params);
    h = eng_layer_norm(b, h, n.weight, n.bias, eps);  // (B, T, H)
  }
  if (project) h = eng_linear(b, h, project, 0);                      // (B, T, W)
  const eng_id weights = eng_offered(b, "loss_weights");              // (B, T)
  return eng_language_loss(b, h, words, labels, weights, c_.z_loss);  // (1)
}

std::vector<model::Signature> Model::templates() const {
  const uint32_t projection = c_.projected() ? 1 : 0, norm = c_.affine ? 2 : 0;
  return {{2 + projection, 0},
          {(c_.bias ? 2u : 1u) * map_count + 2 * norm, 1},
          {1 + projection + (c_.final_norm ? norm : 0), 1}};
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl == embed_template) return embed(b, params);
  return tmpl == layer_template ? layer(b, params, in[0]) : head(b, params, in[0]);
}

}  // namespace opt
