// SPDX-License-Identifier: Apache-2.0
// MiniCPM (Hu et al. 2024).
#include <cmath>

#include "models.hpp"

namespace decoders {

decoder::Config read_minicpm(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, false);
  c.embedding_scale = in.real("scale_emb");
  c.residual_scale = in.real("scale_depth") / std::sqrt(static_cast<double>(c.layers));
  c.logit_scale = static_cast<double>(in.size("dim_model_base")) / static_cast<double>(c.hidden);
  return c;
}

}  // namespace decoders
