// SPDX-License-Identifier: Apache-2.0
// The order of ops and of parameters decides bits: that of ops fixes the order in which gradients are added, that of
// parameters what each draws at initialisation. So no two calls that emit ops are arguments of one call: a compiler may
// evaluate them in any order.
#include "model.hpp"

#include <array>
#include <cmath>
#include <string>

namespace decoder {
namespace {

constexpr int64_t most_angles = int64_t{1} << 27;  // values of the table of rotations: a million positions of 128

enum : size_t { q, k, v, o, gate, up, down };  // of Config::maps

struct Shape {
  int64_t rows, columns;  // out, in
};
std::array<Shape, map_count> shapes(const Config& c) {
  const int64_t a = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return {{{a, c.hidden},
           {kv, c.hidden},
           {kv, c.hidden},
           {c.hidden, a},
           {c.ffn, c.hidden},
           {c.ffn, c.hidden},
           {c.hidden, c.ffn}}};
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
  info.attention_width = c_.heads * c_.head_dim;
  info.layers = c_.layers;
  // Dynamic scaling is made for going beyond the trained length.
  info.max_length = c_.rotary() && c_.rope.type == RopeType::dynamic ? 0 : c_.max_positions;
  return info;
}

uint32_t Model::norm_params() const {
  return !c_.affine ? 0 : c_.layer_norm ? 2 : 1;
}

void Model::declare_norm(eng_build* b, const std::string& name, std::vector<eng_id>& params) const {
  if (!c_.affine) return;
  params.push_back(model::vector(b, name + ".weight", c_.hidden, 1.0));
  if (c_.layer_norm) params.push_back(model::vector(b, name + ".bias", c_.hidden, 0.0));
}

Model::Norm Model::take_norm(const eng_id*& params) const {
  Norm out;
  if (c_.affine) out.weight = *params++;
  if (c_.affine && c_.layer_norm) out.bias = *params++;
  return out;
}

eng_id Model::norm(eng_build* b, const Norm& n, eng_id x) const {
  return c_.layer_norm ? eng_layer_norm(b, x, n.weight, n.bias, c_.eps) : eng_rms_norm(b, x, n.weight, c_.eps);
}

eng_id Model::add_norm(eng_build* b, const Norm& n, eng_id x, eng_id residual, eng_id* sum) const {
  return c_.layer_norm ? eng_add_layer_norm(b, x, residual, n.weight, n.bias, c_.eps, sum)
                       : eng_add_rms_norm(b, x, residual, n.weight, c_.eps, sum);
}

// In every block matrices come first and undecayed vectors last, so that each kind is one run of elements.
void Model::declare(eng_build* b) const {
  const std::string body = c_.body;
  const double std = c_.init_std;
  const eng_id words = model::matrix(b, body + "embed_tokens.weight", c_.vocabulary, c_.word_width, std);
  std::vector<eng_id> params = {words};
  if (c_.positions)
    params.push_back(
        model::matrix(b, body + c_.positions + ".weight", c_.max_positions + c_.position_offset, c_.hidden, std));
  if (c_.projected()) params.push_back(model::matrix(b, body + "project_in.weight", c_.hidden, c_.word_width, std));
  model::block(b, "embed", model::embed_template, params);

  const auto sizes = shapes(c_);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = model::layer_name(i), prefix = body + block + ".";
    params.clear();
    for (size_t m = 0; m < map_count; ++m)
      if (const char* name = c_.maps[m].name)
        params.push_back(model::matrix(b, prefix + name + ".weight", sizes[m].rows, sizes[m].columns,
                                       m == o || m == down ? c_.init_out_std : std));
    for (size_t m = 0; m < map_count; ++m)
      if (c_.maps[m].bias) params.push_back(model::vector(b, prefix + c_.maps[m].name + ".bias", sizes[m].rows, 0.0));
    declare_norm(b, prefix + c_.attention_norm, params);
    declare_norm(b, prefix + c_.ffn_norm, params);
    model::block(b, block, model::layer_template, params);
  }

  params = {c_.tied ? words : model::matrix(b, "lm_head.weight", c_.vocabulary, c_.word_width, std)};
  if (c_.projected()) params.push_back(model::matrix(b, body + "project_out.weight", c_.word_width, c_.hidden, std));
  if (c_.final_norm) declare_norm(b, body + c_.final_norm, params);
  model::block(b, "head", model::head_template, params);
}

eng_id Model::embed(eng_build* b, const eng_id* params) const {
  eng_id tokens = 0;
  b->api->batch(b, "tokens", &tokens, nullptr);    // (B, T)
  eng_id h = eng_embedding(b, tokens, *params++);  // (B, T, W)
  if (!c_.positions) return c_.projected() ? eng_linear(b, h, *params, 0) : h;
  const eng_id table = *params++;
  if (c_.projected()) h = eng_linear(b, h, *params, 0);  // (B, T, H)
  const eng_id positions = eng_offered(b, "positions");  // (B, T)
  return eng_positions_at(b, h, table, positions, c_.position_offset);
}

// The table (T, D) of cos and sin; 0 if `h` has no shape.
eng_id Model::rotations(eng_build* b, eng_id h) const {
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
  return table;
}

eng_id Model::layer(eng_build* b, const eng_id* params, eng_id h) const {
  std::array<eng_id, map_count> w{}, bias{};
  for (size_t m = 0; m < map_count; ++m)
    if (c_.maps[m].name) w[m] = *params++;
  for (size_t m = 0; m < map_count; ++m)
    if (c_.maps[m].bias) bias[m] = *params++;
  const Norm attention_norm = take_norm(params);
  const Norm ffn_norm = take_norm(params);
  const auto linear = [&](size_t m, eng_id x) { return eng_linear(b, x, w[m], bias[m]); };

  // A field of the batch gets its id when it is first asked for, and plans are in the order of ids: where a model asks
  // must not change.
  eng_id table = 0, positions = 0, segments = 0;  // segments: (B, T)
  if (c_.rotary()) {
    table = rotations(b, h);
    if (!table) return 0;
    positions = eng_offered(b, "positions");  // (B, T)
    segments = eng_offered(b, "segments");
  }
  double scale = 1.0 / std::sqrt(static_cast<double>(c_.head_dim));
  const eng_id n1 = c_.norm_before ? norm(b, attention_norm, h) : h;  // (B, T, H)
  eng_id query = linear(q, n1);                                       // (B, T, A)
  if (c_.rotary()) query = eng_rope_at(b, query, table, positions, c_.heads);
  if (c_.scale_query && !exact(scale)) query = eng_scale(b, query, scale), scale = 1.0;
  eng_id key = linear(k, n1);  // (B, T, K)
  if (c_.rotary()) key = eng_rope_at(b, key, table, positions, c_.kv_heads);
  const eng_id value = linear(v, n1);  // (B, T, K)
  if (!c_.rotary()) segments = eng_offered(b, "segments");
  const eng_id mixed = eng_attention_in(b, query, key, value, segments, c_.heads, c_.kv_heads, scale);  // (B, T, A)

  eng_id h1 = 0, sum = 0;
  const eng_id attended = eng_dropout(b, linear(o, mixed), c_.dropout);                         // (B, T, H)
  const eng_id n2 = add_norm(b, c_.norm_before ? ffn_norm : attention_norm, attended, h, &h1);  // (B, T, H)
  eng_id inner = 0;                                                                             // (B, T, F)
  if (c_.gated()) {
    const eng_id above = linear(up, n2);
    const eng_id open = linear(gate, n2);
    inner = eng_gated(b, open, above, c_.act);
  } else {
    inner =
        c_.act == ENG_ACT_RELU ? eng_linear_relu(b, n2, w[up], bias[up]) : eng_activation(b, linear(up, n2), c_.act);
  }
  const eng_id y = eng_dropout(b, linear(down, inner), c_.dropout);  // (B, T, H)
  return c_.norm_before ? eng_add(b, y, h1) : add_norm(b, ffn_norm, y, n2, &sum);
}

eng_id Model::head(eng_build* b, const eng_id* params, eng_id h) const {
  const eng_id words = *params++, project = c_.projected() ? *params++ : 0;
  eng_id labels = 0;  // asked for here, so that it keeps its place among the ids of the block
  b->api->batch(b, "labels", &labels, nullptr);          // (B, T)
  if (c_.final_norm) h = norm(b, take_norm(params), h);  // (B, T, H)
  if (project) h = eng_linear(b, h, project, 0);         // (B, T, W)
  return eng_head_loss(b, h, words);                     // (1)
}

std::vector<model::Signature> Model::templates() const {
  const uint32_t projection = c_.projected() ? 1 : 0, table = c_.positions ? 1 : 0;
  uint32_t maps = 0;
  for (const Map& m : c_.maps) maps += (m.name ? 1u : 0u) + (m.bias ? 1u : 0u);
  return {{1 + table + projection, 0},
          {maps + 2 * norm_params(), 1},
          {1 + projection + (c_.final_norm ? norm_params() : 0), 1}};
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl == model::embed_template) return embed(b, params);
  return tmpl == model::layer_template ? layer(b, params, in[0]) : head(b, params, in[0]);
}

}  // namespace decoder
