// SPDX-License-Identifier: Apache-2.0
// Code that the models of this folder share: initial values, and the blocks around the layers. Shapes in comments: B
// batch, T time, H hidden.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "../common/model.hpp"

namespace mamba {

// The initialisation of torch for a linear map, or a convolution, with this number of inputs.
inline model::Init by_inputs(int64_t inputs, double divisor = 1.0) {
  return model::uniform(1.0 / (std::sqrt(static_cast<double>(inputs)) * divisor));
}

// `x` as f32 where compute has 16 bits.
inline eng_id widened(eng_build* b, eng_id x) {
  eng_desc d{};
  if (b->api->shape(b, x, &d, nullptr)) return 0;
  return d.dtype == ENG_BF16 || d.dtype == ENG_F16 ? eng_cast(b, x, ENG_F32) : x;
}

// The following are of a model with configuration `c`. Weights are the parameters of one of its layers: each(c, f)
// calls f(id, name, dims, flags, init) for every one that there is.

template <class Config>
eng_model_info info_of(const Config& c) {
  eng_model_info info{};
  info.vocabulary = c.vocabulary;
  info.layers = c.layers;
  return info;  // the model has no attention and no limit on the length
}

template <class Weights, class Config>
void declare_blocks(eng_build* b, const Config& c) {
  const std::vector<int64_t> table = {c.vocabulary, c.hidden};
  const eng_id embeddings = model::param(b, "backbone.embeddings.weight", table, 0, model::normal(c.std));
  model::block(b, "embed", model::embed_template, {embeddings});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string block = model::layer_name(i);
    std::vector<eng_id> params;
    Weights{}.each(
        c, [&](eng_id&, const char* name, const std::vector<int64_t>& dims, uint32_t flags, const model::Init& init) {
          params.push_back(model::param(b, "backbone." + block + "." + name, dims, flags, init));
        });
    model::block(b, block, model::layer_template, params);
  }
  const model::Init head = c.hugging_face ? model::normal(c.std) : by_inputs(c.hidden);
  const eng_id out = c.tied ? embeddings : model::param(b, "lm_head.weight", table, 0, head);
  model::block(b, "head", model::head_template, {out, model::vector(b, "backbone.norm_f.weight", c.hidden, 1.0)});
}

template <class Weights, class Config>
std::vector<model::Signature> signatures_of(const Config& c) {
  uint32_t params = 0;
  Weights{}.each(c, [&](eng_id&, const char*, const std::vector<int64_t>&, uint32_t, const model::Init&) { ++params; });
  return {{1, 0}, {params, 1}, {2, 1}};
}

// The weights of a layer whose template has `params`.
template <class Weights, class Config>
Weights taken(const Config& c, const eng_id* params) {
  Weights w{};
  w.each(c,
         [&](eng_id& id, const char*, const std::vector<int64_t>&, uint32_t, const model::Init&) { id = *params++; });
  return w;
}

// The output of the template of the embeddings, (B, T, H), or of the head, (1). `wide`: the residual stream is f32
// where compute has 16 bits.
inline eng_id trace_ends(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in, double eps, bool wide) {
  eng_id batch = 0;  // (B, T)
  b->api->batch(b, tmpl == model::embed_template ? "tokens" : "labels", &batch, nullptr);
  if (tmpl == model::embed_template) {
    const eng_id words = eng_embedding(b, batch, params[0]);
    return wide ? widened(b, words) : words;
  }
  return eng_head_loss(b, eng_rms_norm(b, in[0], params[1], eps), params[0]);
}

}  // namespace mamba
