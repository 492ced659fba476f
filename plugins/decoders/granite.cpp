// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): factors as in maximal update parametrisation (Yang et al. 2022).
#include "models.hpp"

namespace decoders {

decoder::Config read_granite(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, in.flag("mlp_bias"));
  c.embedding_scale = in.real("embedding_multiplier");
  c.attention_scale = in.real("attention_multiplier");
  c.residual_scale = in.real("residual_multiplier");
  c.logit_scale = 1.0 / in.real("logits_scaling");
  return c;
}

}  // namespace decoders
