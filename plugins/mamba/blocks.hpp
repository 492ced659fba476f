// SPDX-License-Identifier: Apache-2.0
// Code that the models of this folder share: initial values, and the blocks around the layers. Shapes in comments: B
// batch, T time, H hidden.
#pragma once

#include <cmath>

#include "../common/model.hpp"

namespace mamba {

// The initialisation of torch for a linear map, or a convolution, with this number of inputs.
inline model::Init by_inputs(int64_t inputs, double divisor = 1.0) {
  return model::uniform(1.0 / (std::sqrt(static_cast<double>(inputs)) * divisor));
}

// The residual stream is f32 where compute has 16 bits.
inline eng_id widened(eng_build* b, eng_id x) {
  eng_desc d{};
  if (b->api->shape(b, x, &d, nullptr)) return 0;
  return d.dtype == ENG_BF16 || d.dtype == ENG_F16 ? eng_cast(b, x, ENG_F32) : x;
}

// Parameters and blocks of a model whose layers have the parameters that layer(prefix) declares.
template <class Layer>
void declare_blocks(eng_build* b, int64_t vocabulary, int64_t hidden, int64_t layers, double std, bool tied,
                    const model::Init& head, Layer&& layer) {
  const std::vector<int64_t> table = {vocabulary, hidden};
  const eng_id embeddings = model::param(b, "backbone.embeddings.weight", table, 0, model::normal(std));
  model::block(b, "embed", model::embed_template, {embeddings});
  for (int64_t i = 0; i < layers; ++i) {
    const std::string block = model::layer_name(i);
    model::block(b, block, model::layer_template, layer("backbone." + block + "."));
  }
  const eng_id out = tied ? embeddings : model::param(b, "lm_head.weight", table, 0, head);
  model::block(b, "head", model::head_template, {out, model::vector(b, "backbone.norm_f.weight", hidden, 1.0)});
}

// The output of the template of the embeddings, (B, T, H), or of the head, (1).
inline eng_id trace_ends(eng_build* b, uint32_t tmpl, const eng_id* params, const eng_id* in, double eps) {
  eng_id batch = 0;  // (B, T)
  b->api->batch(b, tmpl == model::embed_template ? "tokens" : "labels", &batch, nullptr);
  if (tmpl == model::embed_template) return widened(b, eng_embedding(b, batch, params[0]));
  return eng_head_loss(b, eng_rms_norm(b, in[0], params[1], eps), params[0]);
}

}  // namespace mamba
