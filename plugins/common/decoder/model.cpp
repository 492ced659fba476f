// SPDX-License-Identifier: Apache-2.0
// The order of ops and of parameters decides bits: that of ops fixes the order in which gradients are added, that of
// parameters what each draws at initialisation. So no two calls that emit ops are arguments of one call: a compiler may
// evaluate them in any order.
#include "model.hpp"

#include <array>
#include <cmath>
#include <string>

#include "../half.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_softcap.h"

namespace decoder {
namespace {

// The templates of layers that are second_kind, that are dense, and that are both.
constexpr uint32_t second_template = 3, dense_template = 4, second_dense_template = 5;
constexpr int64_t most_angles = int64_t{1} << 27;  // values of the table of rotations: a million positions of 128

// (B, T, n * size) as (B, T, n, size), and back. In a running sequence the number of positions is another one.
eng_id by_head(eng_build* b, eng_id x, int64_t n, int64_t size) {
  const int64_t dims[] = {n, size};
  return eng_reshape(b, x, 2, dims, 2);
}
eng_id joined(eng_build* b, eng_id x) {
  const int64_t all[] = {-1};
  return eng_reshape(b, x, 2, all, 1);
}

eng_id scaled(eng_build* b, eng_id x, double factor) {
  return factor == 1.0 ? x : eng_scale(b, x, factor);
}

int32_t dtype_of(eng_build* b, eng_id value) {
  eng_desc shape{};
  b->api->shape(b, value, &shape, nullptr);
  return shape.dtype;
}

eng_id as(eng_build* b, eng_id x, int32_t dtype) {
  return dtype_of(b, x) == dtype ? x : eng_cast(b, x, dtype);
}

// `x` as a number of that type; f64 stays.
double rounded(double x, int32_t dtype) {
  const auto single = static_cast<float>(x);
  if (dtype == ENG_BF16) return static_cast<double>(common::Bf16(single));
  if (dtype == ENG_F16) return static_cast<double>(common::F16(single));
  return dtype == ENG_F32 ? static_cast<double>(single) : x;
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
  params.push_back(model::vector(b, name + ".weight", c_.hidden, c_.plus_one ? 0.0 : 1.0));
  if (c_.layer_norm) params.push_back(model::vector(b, name + ".bias", c_.hidden, 0.0));
}

Model::Norm Model::take_norm(const eng_id*& params) const {
  Norm out;
  if (c_.affine) out.weight = *params++;
  if (c_.affine && c_.layer_norm) out.bias = *params++;
  return out;
}

// The factor of an RMS norm, of the type of its weight. 1 + weight is rounded to it once.
eng_id Model::rms_factor(eng_build* b, eng_id weight) const {
  eng_desc shape{};
  if (!c_.plus_one || b->api->shape(b, weight, &shape, nullptr) != ENG_OK) return weight;
  const int32_t dtype = shape.dtype;
  shape.dtype = ENG_F32;
  const std::vector<float> ones(static_cast<size_t>(shape.dims[0]), 1.0f);
  eng_id one = 0;
  b->api->constant(b, &shape, ones.data(), &one, nullptr);
  if (dtype == ENG_F64) one = eng_cast(b, one, dtype);
  const eng_id sum = eng_add(b, weight, one);
  return dtype == ENG_BF16 || dtype == ENG_F16 ? eng_cast(b, sum, dtype) : sum;
}

// The result has the type of the weights. x may be f32 where these have 16 bits.
eng_id Model::norm(eng_build* b, const Norm& n, eng_id x) const {
  if (!c_.layer_norm) return eng_rms_norm(b, x, rms_factor(b, n.weight), c_.eps);
  const int32_t wide = dtype_of(b, x), dtype = n.weight ? dtype_of(b, n.weight) : wide;
  if (dtype == wide) return eng_layer_norm(b, x, n.weight, n.bias, c_.eps);
  const eng_id weight = eng_cast(b, n.weight, wide);
  const eng_id bias = eng_cast(b, n.bias, wide);
  return eng_cast(b, eng_layer_norm(b, x, weight, bias, c_.eps), dtype);
}

eng_id Model::add_norm(eng_build* b, const Norm& n, eng_id x, eng_id residual, eng_id* sum) const {
  if (dtype_of(b, x) != dtype_of(b, residual)) {
    *sum = eng_add(b, x, residual);
    return norm(b, n, *sum);
  }
  return c_.layer_norm ? eng_add_layer_norm(b, x, residual, n.weight, n.bias, c_.eps, sum)
                       : eng_add_rms_norm(b, x, residual, rms_factor(b, n.weight), c_.eps, sum);
}

// The width of the norm of queries or keys of `heads` heads.
int64_t Model::norm_width(int64_t heads) const {
  return c_.norm_by_head ? c_.head_dim : heads * c_.head_dim;
}

// Layers of one model are of at most two kinds: those of the second one do not turn queries and keys, or have the
// window.
bool Model::second_kind(int64_t layer) const {
  return c_.has_window(layer) || (c_.rotary() && !c_.turns.empty() && !c_.turns[static_cast<size_t>(layer)]);
}

bool Model::dense(int64_t layer) const {
  return !c_.own.empty() && !c_.own[static_cast<size_t>(layer)];
}

uint32_t Model::template_of_layer(int64_t layer) const {
  if (dense(layer)) return second_kind(layer) ? second_dense_template : dense_template;
  return second_kind(layer) ? second_template : model::layer_template;
}

// In every block matrices come first and undecayed vectors last, so that each kind is one run of elements.
eng_id Model::declare_embed(eng_build* b) const {
  const std::string body = c_.body;
  const double std = c_.init_std;
  const eng_id words = model::matrix(b, body + c_.words + ".weight", c_.vocabulary, c_.word_width, std);
  std::vector<eng_id> params = {words};
  if (c_.positions)
    params.push_back(
        model::matrix(b, body + c_.positions + ".weight", c_.max_positions + c_.position_offset, c_.hidden, std));
  if (c_.projected()) params.push_back(model::matrix(b, body + "project_in.weight", c_.hidden, c_.word_width, std));
  model::block(b, "embed", model::embed_template, params);
  return words;
}

void Model::declare_head(eng_build* b, eng_id words) const {
  const std::string body = c_.body;
  const double std = c_.init_std;
  std::vector<eng_id> params = {
      c_.tied ? words : model::matrix(b, std::string(c_.head) + ".weight", c_.vocabulary, c_.word_width, std)};
  if (c_.projected()) params.push_back(model::matrix(b, body + "project_out.weight", c_.word_width, c_.hidden, std));
  if (c_.final_norm) declare_norm(b, body + c_.final_norm, params);
  model::block(b, "head", model::head_template, params);
}

void Model::declare(eng_build* b) const {
  const std::string body = c_.body;
  const double std = c_.init_std;
  const eng_id words = declare_embed(b);
  std::vector<eng_id> params;
  const auto sizes = map_shapes(c_);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = model::layer_name(i), prefix = body + c_.layer + "." + std::to_string(i) + ".";
    params.clear();
    for (size_t m = 0; m < map_count; ++m)
      if (c_.has(m, !dense(i)))
        params.push_back(model::matrix(b, prefix + c_.maps[m].name + ".weight", sizes[m].rows, sizes[m].columns,
                                       m == o || m == down ? c_.init_out_std : std));
    if (!dense(i)) declare_own(b, prefix, params);
    for (size_t m = 0; m < map_count; ++m)
      if (c_.has(m, !dense(i)) && c_.maps[m].bias)
        params.push_back(model::vector(b, prefix + c_.maps[m].name + ".bias", sizes[m].rows, 0.0));
    const double one = c_.plus_one ? 0.0 : 1.0;
    if (c_.query_norm)
      params.push_back(model::vector(b, prefix + c_.query_norm + ".weight", norm_width(c_.heads), one));
    if (c_.key_norm) params.push_back(model::vector(b, prefix + c_.key_norm + ".weight", norm_width(c_.kv_heads), one));
    declare_norm(b, prefix + c_.attention_norm, params);
    if (c_.behind_attention_norm) declare_norm(b, prefix + c_.behind_attention_norm, params);
    declare_norm(b, prefix + c_.ffn_norm, params);
    if (c_.behind_ffn_norm) declare_norm(b, prefix + c_.behind_ffn_norm, params);
    model::block(b, block, template_of_layer(i), params);
  }
  declare_head(b, words);
}

eng_id Model::embed(eng_build* b, const eng_id* params) const {
  eng_id tokens = 0;
  b->api->batch(b, "tokens", &tokens, nullptr);  // (B, T)
  const double scale = c_.embedding_scale;
  const double factor = c_.embedding_scale_rounded ? rounded(scale, dtype_of(b, *params)) : scale;
  eng_id h = eng_embedding(b, tokens, *params++);  // (B, T, W)
  h = scaled(b, h, factor);
  if (c_.positions) {
    const eng_id table = *params++;
    if (c_.projected()) h = eng_linear(b, h, *params, 0);  // (B, T, H)
    const eng_id positions = eng_offered(b, "positions");  // (B, T)
    h = eng_positions_at(b, h, table, positions, c_.position_offset);
  } else if (c_.projected()) {
    h = eng_linear(b, h, *params, 0);
  }
  return eng_dropout(b, h, c_.embedding_dropout);
}

// The table (T, turned) of cos and sin; 0 if `h` has no shape.
eng_id Model::rotations(eng_build* b, eng_id h, const Rope& rope) const {
  eng_desc shape{};
  if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return 0;
  const int64_t length = shape.dims[1];
  if (length > most_angles / c_.turned)
    model::invalid("sequence_length = " + std::to_string(length) + ": the table of rotations is limited to 512 MiB, " +
                   std::to_string(most_angles / c_.turned) + " positions of heads of " + std::to_string(c_.turned) +
                   "; use a shorter sequence");
  const std::vector<float> cos_sin = rope_table(rope, c_.turned, length);
  const eng_desc desc = {ENG_F32, 2, {length, c_.turned}};
  eng_id table = 0;
  b->api->constant(b, &desc, cos_sin.data(), &table, nullptr);
  return table;
}

// x (B, T, heads * D) with the first channels of each head turned.
eng_id Model::turn(eng_build* b, eng_id x, eng_id table, eng_id positions, int64_t heads) const {
  const int64_t turned = c_.turned, sizes[] = {turned, c_.head_dim - turned};
  if (turned == c_.head_dim) return eng_rope_at(b, x, table, positions, heads);
  eng_id parts[2];
  eng_split(b, by_head(b, x, heads, c_.head_dim), 3, 2, sizes, parts);
  parts[0] = by_head(b, eng_rope_at(b, joined(b, parts[0]), table, positions, heads), heads, turned);
  return joined(b, eng_concat(b, parts, 2, 3));
}

// The norm of queries or keys; x itself if there is none.
eng_id Model::head_norm(eng_build* b, eng_id weight, eng_id x, int64_t heads) const {
  if (!weight) return x;
  weight = rms_factor(b, weight);
  if (!c_.norm_by_head) return eng_rms_norm(b, x, weight, c_.eps);
  return joined(b, eng_rms_norm(b, by_head(b, x, heads, c_.head_dim), weight, c_.eps));
}

// The weights of a layer, of which those that it does not have are 0.
Model::Layer Model::take_layer(const eng_id* params, bool dense) const {
  Layer out;
  for (size_t m = 0; m < map_count; ++m)
    if (c_.has(m, !dense)) out.w[m] = *params++;
  if (!dense) out.own = params, params += own_count();
  for (size_t m = 0; m < map_count; ++m)
    if (c_.has(m, !dense) && c_.maps[m].bias) out.bias[m] = *params++;
  if (c_.query_norm) out.query_norm = *params++;
  if (c_.key_norm) out.key_norm = *params++;
  out.attention_norm = take_norm(params);
  if (c_.behind_attention_norm) out.behind_attention_norm = take_norm(params);
  out.ffn_norm = take_norm(params);
  if (c_.behind_ffn_norm) out.behind_ffn_norm = take_norm(params);
  return out;
}

// The summand of attention in the residual stream, from x (B, T, H). A field of the batch gets its id when it is first
// asked for, and plans are in the order of ids: the places where `layer` asks for them must not change.
eng_id Model::attention(eng_build* b, const Layer& l, eng_id x, const Fields& fields) const {
  double scale = c_.attention_scale != 0.0 ? c_.attention_scale : 1.0 / std::sqrt(static_cast<double>(c_.head_dim));
  const int64_t d = c_.head_dim, group = c_.heads / c_.kv_heads * d;
  eng_id parts[3] = {0, 0, 0};
  if (c_.fused()) {
    const int64_t sizes[] = {group, d, d};
    eng_split(b, by_head(b, linear(b, l, q, x), c_.kv_heads, group + 2 * d), 3, 3, sizes, parts);
    for (eng_id& part : parts) part = joined(b, part);
  }
  const auto turned = [&](eng_id y, int64_t heads) {
    return fields.table ? turn(b, y, fields.table, fields.positions, heads) : y;
  };
  eng_id query = c_.fused() ? parts[0] : linear(b, l, q, x);  // (B, T, A)
  query = turned(head_norm(b, l.query_norm, query, c_.heads), c_.heads);
  if (c_.scale_query && !exact(scale)) query = eng_scale(b, query, scale), scale = 1.0;
  eng_id key = c_.fused() ? parts[1] : linear(b, l, k, x);  // (B, T, K)
  key = turned(head_norm(b, l.key_norm, key, c_.kv_heads), c_.kv_heads);
  const eng_id value = c_.fused() ? parts[2] : linear(b, l, v, x);  // (B, T, K)
  const eng_id segments = fields.table ? fields.segments : eng_offered(b, "segments");
  const eng_id mixed = eng_attention_window_in(b, query, key, value, segments, c_.heads, c_.kv_heads, scale,
                                               fields.window, c_.score_cap);                // (B, T, A)
  return scaled(b, eng_dropout(b, linear(b, l, o, mixed), c_.dropout), c_.residual_scale);  // (B, T, H)
}

// The summand of the feed-forward layer, from x (B, T, H).
eng_id Model::feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id*) const {
  eng_id inner = 0;  // (B, T, F)
  if (c_.gated()) {
    const eng_id above = linear(b, l, up, x);
    const eng_id open = linear(b, l, gate, x);
    inner = eng_gated(b, open, above, c_.act);
  } else {
    inner = c_.act == ENG_ACT_RELU ? eng_linear_relu(b, x, l.w[up], l.bias[up])
                                   : eng_activation(b, linear(b, l, up, x), c_.act);
  }
  return scaled(b, eng_dropout(b, linear(b, l, down, inner), c_.dropout), c_.residual_scale);  // (B, T, H)
}

eng_id Model::layer(eng_build* b, const eng_id* params, eng_id h, bool turned, bool windowed, bool dense,
                    eng_id* beside) const {
  const Layer l = take_layer(params, dense);
  Fields fields;
  if (windowed) {
    eng_desc shape{};
    if (b->api->shape(b, h, &shape, nullptr) != ENG_OK) return 0;
    // One that holds the whole sequence is none. A running sequence is never longer than this one.
    fields.window = c_.window < shape.dims[1] ? c_.window : 0;
  }
  if (turned) {
    fields.table = rotations(b, h, windowed && c_.window_rope ? *c_.window_rope : c_.rope);
    if (!fields.table) return 0;
    fields.positions = eng_offered(b, "positions");  // (B, T)
    fields.segments = eng_offered(b, "segments");    // (B, T)
  }
  eng_id h1 = 0, sum = 0;
  const int32_t dtype = dtype_of(b, l.w[o]);
  if (c_.norms == Norms::behind_sublayer) {
    const eng_id attended = attention(b, l, as(b, h, dtype), fields);
    h1 = eng_add(b, norm(b, l.attention_norm, attended), h);
    const eng_id y = feed_forward(b, l, as(b, h1, dtype), beside);
    return eng_add(b, norm(b, l.ffn_norm, y), h1);
  }
  if (c_.norms == Norms::around) {
    const eng_id attended = attention(b, l, norm(b, l.attention_norm, h), fields);
    const eng_id n2 = add_norm(b, l.ffn_norm, norm(b, l.behind_attention_norm, attended), h, &h1);
    const eng_id y = feed_forward(b, l, n2, beside);
    return eng_add(b, norm(b, l.behind_ffn_norm, y), h1);
  }
  const bool before = c_.norms == Norms::before;
  if (!before && dtype_of(b, h) != dtype)
    model::invalid(
        "precision.residual = \"f32\": the norms of this model are behind its sums, so no stream passes by "
        "them; leave it out");
  const eng_id n1 = before ? as(b, norm(b, l.attention_norm, h), dtype) : h;  // (B, T, H)
  const eng_id attended = attention(b, l, n1, fields);
  if (c_.parallel) {
    const eng_id n2 = as(b, norm(b, l.ffn_norm, h), dtype);
    const eng_id y = feed_forward(b, l, n2, beside);
    return eng_add(b, eng_add(b, y, attended), h);
  }
  const eng_id n2 = as(b, add_norm(b, before ? l.ffn_norm : l.attention_norm, attended, h, &h1), dtype);
  const eng_id y = feed_forward(b, l, n2, beside);
  return before ? eng_add(b, y, h1) : add_norm(b, l.ffn_norm, y, n2, &sum);
}

eng_id Model::head(eng_build* b, const eng_id* params, eng_id h) const {
  const eng_id words = *params++, project = c_.projected() ? *params++ : 0;
  eng_id labels = 0;  // asked for here, so that it keeps its place among the ids of the block
  b->api->batch(b, "labels", &labels, nullptr);          // (B, T)
  if (c_.final_norm) h = norm(b, take_norm(params), h);  // (B, T, H)
  h = as(b, h, dtype_of(b, words));
  if (project) h = eng_linear(b, h, project, 0);  // (B, T, W)
  h = scaled(b, h, c_.logit_scale);
  if (c_.logit_cap != 0.0)
    return eng_capped_cross_entropy(b, h, words, labels, eng_offered(b, "loss_weights"), c_.logit_cap);
  return eng_head_loss(b, h, words);  // (1)
}

std::vector<model::Signature> Model::templates() const {
  const uint32_t projection = c_.projected() ? 1 : 0, table = c_.positions ? 1 : 0;
  const auto maps = [&](bool own) {
    uint32_t n = 0;
    for (size_t m = 0; m < map_count; ++m) n += !c_.has(m, own) ? 0u : c_.maps[m].bias ? 2u : 1u;
    return n;
  };
  const uint32_t head_norms = (c_.query_norm ? 1u : 0u) + (c_.key_norm ? 1u : 0u);
  const uint32_t norms = 2 + (c_.behind_attention_norm ? 1u : 0u) + (c_.behind_ffn_norm ? 1u : 0u);
  const uint32_t more = head_norms + norms * norm_params();
  const model::Signature layer = {maps(true) + own_count() + more, 1}, dense = {maps(false) + more, 1};
  std::vector<model::Signature> out = {
      {1 + table + projection, 0}, layer, {1 + projection + (c_.final_norm ? norm_params() : 0), 1}};
  if (!c_.turns.empty() || c_.window > 0 || !c_.own.empty()) out.push_back(layer);  // second_template
  if (!c_.own.empty()) out.insert(out.end(), 2, dense);  // dense_template, second_dense_template
  return out;
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in, eng_id* beside) const {
  if (tmpl == model::embed_template) return embed(b, params);
  if (tmpl == model::head_template) return head(b, params, in[0]);
  const bool second = tmpl == second_template || tmpl == second_dense_template;
  return layer(b, params, in[0], c_.rotary() && (!second || c_.turns.empty()), second && c_.window > 0,
               tmpl >= dense_template, beside);
}

}  // namespace decoder
