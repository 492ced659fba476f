// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>

#include "weights.hpp"

namespace hybrid {
namespace {

eng_id scaled(eng_build* b, eng_id x, double factor) {
  return factor == 1.0 ? x : eng_scale(b, x, factor);
}

// The template of a kind of layer: that of the head stands between the first one and the others.
uint32_t template_of(size_t kind) {
  return kind == 0 ? model::layer_template : model::head_template + static_cast<uint32_t>(kind);
}
size_t kind_of(uint32_t tmpl) {
  return tmpl == model::layer_template ? 0 : tmpl - model::head_template;
}

}  // namespace

Model::Model(Config config) : decoder::Model(config.decoder), h_(std::move(config)) {
  for (uint32_t parts : h_.layers)
    if (!std::count(kinds_.begin(), kinds_.end(), parts)) kinds_.push_back(parts);
}

eng_model_info Model::describe() const {
  eng_model_info info = decoder::Model::describe();
  // The mean over the layers, as some have no attention.
  const int64_t attending =
      std::count_if(h_.layers.begin(), h_.layers.end(), [](uint32_t parts) { return parts & attends; });
  info.attention_width = info.attention_width * attending / info.layers;
  return info;
}

void Model::declare(eng_build* b) const {
  const eng_id words = declare_embed(b);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = model::layer_name(i), prefix = c_.body + block + ".";
    const uint32_t parts = h_.layers[static_cast<size_t>(i)];
    std::vector<eng_id> params;
    Weights w;
    each(parts, w,
         [&](eng_id&, const std::string& name, const std::vector<int64_t>& dims, uint32_t flags,
             const model::Init& init) { params.push_back(model::param(b, prefix + name, dims, flags, init)); });
    const auto kind = static_cast<size_t>(std::find(kinds_.begin(), kinds_.end(), parts) - kinds_.begin());
    model::block(b, block, template_of(kind), params);
  }
  declare_head(b, words);
}

std::vector<model::Signature> Model::templates() const {
  const std::vector<model::Signature> ends = decoder::Model::templates();
  std::vector<model::Signature> out = {ends[0], {}, ends[2]};
  const uint32_t inputs = h_.experts.terms() ? 2 : 1;
  out[model::head_template].inputs = inputs;
  out.resize(kinds_.size() + 2);
  for (size_t k = 0; k < kinds_.size(); ++k) {
    uint32_t params = 0;
    Weights w;
    each(kinds_[k], w,
         [&](eng_id&, const std::string&, const std::vector<int64_t>&, uint32_t, const model::Init&) { ++params; });
    out[template_of(k)] = {params, inputs};
  }
  return out;
}

eng_id Model::feed_forward(eng_build* b, const Layer& l, eng_id x, eng_id* beside) const {
  if (h_.squared) {
    const eng_id open = eng_linear_relu(b, x, l.w[decoder::up], l.bias[decoder::up]);  // (B, T, F)
    return linear(b, l, decoder::down, eng_gated(b, open, open, ENG_ACT_RELU));        // (B, T, H)
  }
  if (h_.gate == 1.0 && h_.down == 1.0) return decoder::Model::feed_forward(b, l, x, beside);
  const eng_id above = linear(b, l, decoder::up, x);                                // (B, T, F)
  const eng_id open = scaled(b, linear(b, l, decoder::gate, x), h_.gate);           // (B, T, F)
  const eng_id y = linear(b, l, decoder::down, eng_gated(b, open, above, c_.act));  // (B, T, H)
  return scaled(b, y, h_.down);
}

// The summand of the mixer, of the attention, or of both, from x (B, T, H).
eng_id Model::sublayer(eng_build* b, uint32_t parts, const Weights& w, eng_id x) const {
  eng_id mixed = 0;
  if (parts & mixes) {
    const eng_id y =
        h_.selective ? mamba::mixed(b, *h_.selective, w.selective, x) : mamba::mixed(b, h_.mixer, w.mixer, x);
    mixed = scaled(b, y, h_.mixer_out * c_.residual_scale);
  }
  if (!(parts & attends)) return mixed;
  Fields fields;
  if (h_.rotary) {
    fields.table = rotations(b, x, c_.rope);
    if (!fields.table) return 0;
    fields.positions = eng_offered(b, "positions");  // (B, T)
    fields.segments = eng_offered(b, "segments");    // (B, T)
  }
  const eng_id read = scaled(b, x, h_.attention_in);
  const eng_id attended = scaled(b, decoder::Model::attention(b, w, read, fields), h_.attention_out);
  return mixed ? eng_add(b, mixed, attended) : attended;
}

// The summand of the feed-forward layer, of the experts, or of both.
eng_id Model::second(eng_build* b, uint32_t parts, const Weights& w, eng_id x, eng_id* load) const {
  const eng_id fed = parts & feeds ? feed_forward(b, w, x, nullptr) : 0;
  if (!(parts & routes)) return fed;
  const eng_id y = scaled(b, decoder::mixed_experts(b, h_.experts, w.experts, c_.act, x, load), c_.residual_scale);
  return fed ? eng_add(b, y, fed) : y;
}

eng_id Model::layer(eng_build* b, uint32_t parts, const Weights& w, eng_id h, eng_id* load) const {
  const eng_id n1 = norm(b, w.attention_norm, h);  // (B, T, H)
  if (!(parts & (mixes | attends))) return eng_add(b, second(b, parts, w, n1, load), h);
  const eng_id y = sublayer(b, parts, w, n1);
  if (!two_sublayers(parts)) return eng_add(b, y, h);
  eng_id h1 = 0;
  const eng_id n2 = add_norm(b, w.ffn_norm, y, h, &h1);
  return eng_add(b, second(b, parts, w, n2, load), h1);
}

std::vector<eng_id> Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  const bool terms = h_.experts.terms();
  if (tmpl == model::head_template) {
    const eng_id loss = head(b, params, in[0]);
    const auto routed =
        std::count_if(h_.layers.begin(), h_.layers.end(), [](uint32_t parts) { return parts & routes; });
    if (terms) decoder::add_expert_terms(b, h_.experts, routed, in[0], in[1]);
    return {loss};
  }
  if (tmpl == model::embed_template) {
    const eng_id words = embed(b, params), h = h_.wide ? mamba::widened(b, words) : words;
    if (!terms) return {h};
    return {h, decoder::no_load(b, h_.experts, h)};
  }
  const uint32_t parts = kinds_[kind_of(tmpl)];
  Weights w;
  each(parts, w, [&](eng_id& id, const std::string&, const std::vector<int64_t>&, uint32_t, const model::Init&) {
    id = *params++;
  });
  eng_id load = 0;
  const eng_id h = layer(b, parts, w, in[0], &load);
  if (!terms) return {h};
  return {h, load ? eng_add(b, in[1], load) : eng_scale(b, in[1], 1.0)};  // a layer without experts adds nothing
}

}  // namespace hybrid
