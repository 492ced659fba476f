// SPDX-License-Identifier: Apache-2.0
// InternLM2 (Cai et al. 2024) and InternLM2.5.
#include "models.hpp"

namespace decoders {

decoder::Config read_internlm2(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in);
  const bool bias = in.flag("bias");
  c.maps = {{{"attention.wqkv", bias},
             {},
             {},
             {"attention.wo", bias},
             {"feed_forward.w1", false},
             {"feed_forward.w3", false},
             {"feed_forward.w2", false}}};
  c.words = "tok_embeddings";
  c.head = "output";
  c.attention_norm = "attention_norm";
  c.ffn_norm = "ffn_norm";
  return c;
}

}  // namespace decoders
