// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

namespace llama {

decoder::Config read_llama(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  const bool attention = in.flag("attention_bias"), mlp = in.flag("mlp_bias");
  decoder::name_maps(c, attention, attention, mlp);
  return c;
}

// Qwen2 and Qwen2.5 (Yang et al. 2024).
decoder::Config read_qwen2(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  decoder::name_maps(c, true, false, false);
  return c;
}

}  // namespace llama
