// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>

#include "../blocks.hpp"
#include "../ssd.hpp"

namespace hybrid {
namespace {

using model::constant;
using model::Init;
using model::normal;

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

bool two_sublayers(uint32_t parts) {
  return (parts & feeds) && parts != feeds;
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

// Matrices come first, then vectors without weight decay, then parameters that stay f32, so that each kind is one run
// of elements.
template <class F>
void Model::each(uint32_t parts, Weights& w, F f) const {
  constexpr uint32_t free = ENG_PARAM_NO_DECAY, state = ENG_PARAM_NO_DECAY | ENG_PARAM_FP32;
  const mamba::Mixer& s = h_.mixer;
  const std::string mix = h_.mixer_name + ".";
  const auto sizes = decoder::map_shapes(c_);
  const auto has = [&](size_t map) { return c_.maps[map].name && (parts & (map < decoder::gate ? attends : feeds)); };
  if (parts & mixes) {
    const Init out = h_.out_divisor != 0.0 ? mamba::by_inputs(s.inner(), h_.out_divisor) : normal(c_.init_out_std);
    f(w.mixer.in_proj, mix + "in_proj.weight", {s.columns(), c_.hidden}, 0, normal(c_.init_std));
    f(w.mixer.out_proj, mix + "out_proj.weight", {c_.hidden, s.inner()}, 0, out);
    f(w.mixer.conv, mix + "conv1d.weight", {s.convolved(), 1, s.taps}, 0, mamba::by_inputs(s.taps));
  }
  for (size_t m = 0; m < decoder::map_count; ++m) {
    const bool out = m == decoder::o || m == decoder::down;
    if (has(m))
      f(w.w[m], std::string(c_.maps[m].name) + ".weight", {sizes[m].rows, sizes[m].columns}, 0,
        normal(out ? c_.init_out_std : c_.init_std));
  }
  if (parts & mixes) {
    if (s.conv_bias) f(w.mixer.conv_bias, mix + "conv1d.bias", {s.convolved()}, free, constant(0.0));
    if (s.gate != mamba::Gate::alone) f(w.mixer.norm, mix + "norm.weight", {s.inner()}, free, constant(1.0));
    if (s.bias) f(w.mixer.in_bias, mix + "in_proj.bias", {s.columns()}, free, constant(0.0));
    if (s.out_bias) f(w.mixer.out_bias, mix + "out_proj.bias", {c_.hidden}, free, constant(0.0));
  }
  for (size_t m = 0; m < decoder::map_count; ++m)
    if (has(m) && c_.maps[m].bias)
      f(w.bias[m], std::string(c_.maps[m].name) + ".bias", {sizes[m].rows}, free, constant(0.0));
  f(w.attention_norm.weight, std::string(c_.attention_norm) + ".weight", {c_.hidden}, free, constant(1.0));
  if (two_sublayers(parts))
    f(w.ffn_norm.weight, std::string(c_.ffn_norm) + ".weight", {c_.hidden}, free, constant(1.0));
  if (!(parts & mixes)) return;
  f(w.mixer.a_log, mix + "A_log", {s.heads}, state,
    Init{MAMBA_OP_INIT_LOG_UNIFORM, {{"low", 0, 1.0}, {"high", 0, 16.0}}});
  f(w.mixer.d, mix + "D", {s.heads}, state, constant(1.0));
  f(w.mixer.dt_bias, mix + "dt_bias", {s.heads}, state, mamba::initial_steps(s.dt_min, s.dt_max, s.dt_floor));
}

void Model::declare(eng_build* b) const {
  const eng_id words = declare_embed(b);
  for (int64_t i = 0; i < c_.layers; ++i) {
    const std::string block = model::layer_name(i), prefix = c_.body + block + ".";
    const uint32_t parts = h_.layers[static_cast<size_t>(i)];
    std::vector<eng_id> params;
    Weights w;
    each(parts, w,
         [&](eng_id&, const std::string& name, const std::vector<int64_t>& dims, uint32_t flags, const Init& init) {
           params.push_back(model::param(b, prefix + name, dims, flags, init));
         });
    const auto kind = static_cast<size_t>(std::find(kinds_.begin(), kinds_.end(), parts) - kinds_.begin());
    model::block(b, block, template_of(kind), params);
  }
  declare_head(b, words);
}

std::vector<model::Signature> Model::templates() const {
  const std::vector<model::Signature> ends = decoder::Model::templates();
  std::vector<model::Signature> out = {ends[0], {}, ends[2]};
  out.resize(kinds_.size() + 2);
  for (size_t k = 0; k < kinds_.size(); ++k) {
    uint32_t params = 0;
    Weights w;
    each(kinds_[k], w,
         [&](eng_id&, const std::string&, const std::vector<int64_t>&, uint32_t, const Init&) { ++params; });
    out[template_of(k)] = {params, 1};
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
  if (parts & mixes) mixed = scaled(b, mamba::mixed(b, h_.mixer, w.mixer, x), h_.mixer_out * c_.residual_scale);
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

eng_id Model::layer(eng_build* b, uint32_t parts, const Weights& w, eng_id h) const {
  const eng_id n1 = norm(b, w.attention_norm, h);  // (B, T, H)
  if (parts == feeds) return eng_add(b, feed_forward(b, w, n1, nullptr), h);
  const eng_id y = sublayer(b, parts, w, n1);
  if (!two_sublayers(parts)) return eng_add(b, y, h);
  eng_id h1 = 0;
  const eng_id n2 = add_norm(b, w.ffn_norm, y, h, &h1);
  return eng_add(b, feed_forward(b, w, n2, nullptr), h1);
}

eng_id Model::trace(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in) const {
  if (tmpl == model::head_template) return head(b, params, in[0]);
  if (tmpl == model::embed_template) {
    const eng_id words = embed(b, params);
    return h_.wide ? mamba::widened(b, words) : words;
  }
  const uint32_t parts = kinds_[kind_of(tmpl)];
  Weights w;
  each(parts, w,
       [&](eng_id& id, const std::string&, const std::vector<int64_t>&, uint32_t, const Init&) { id = *params++; });
  return layer(b, parts, w, in[0]);
}

}  // namespace hybrid
