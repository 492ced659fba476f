// SPDX-License-Identifier: Apache-2.0
// Qwen3 (Yang et al. 2025): RMS norms of the queries and keys of each head.
#include "models.hpp"

namespace decoders {

decoder::Config read_qwen3(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in, 1.0, in.integer("head_dim"));
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, false);
  c.query_norm = "self_attn.q_norm";
  c.key_norm = "self_attn.k_norm";
  c.norm_by_head = true;
  return c;
}

}  // namespace decoders
