// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019). Its files keep the matrices of a layer as (in, out), and q, k and v as one: gpt2.hpp.
#include <cmath>

#include "models.hpp"

namespace decoders {

decoder::Config read_gpt2(const model::Reader& in) {
  decoder::Config c = decoder::read_sizes(in, nullptr);
  c.ffn = in.integer_or("n_inner", 4 * c.hidden);
  c.act = in.activation("activation_function");
  c.eps = in.real("layer_norm_epsilon");
  c.body = "transformer.";
  c.layer = "h";
  c.words = "wte";
  c.positions = "wpe";
  c.maps = {{{"attn.q", true},
             {"attn.k", true},
             {"attn.v", true},
             {"attn.c_proj", true},
             {},
             {"mlp.c_fc", true},
             {"mlp.c_proj", true}}};
  c.layer_norm = true;
  c.attention_norm = "ln_1";
  c.ffn_norm = "ln_2";
  c.final_norm = "ln_f";
  if (!in.flag("scale_attn_weights")) c.attention_scale = 1.0;
  c.embedding_dropout = in.real("embd_pdrop");
  c.dropout = in.real("resid_pdrop");
  if (const double p = in.real("attn_pdrop"); p != 0.0)
    model::invalid("attn_pdrop is " + model::number(p) +
                   "; dropout of attention weights is not supported: set attn_pdrop = 0 in [model]");
  c.init_std = in.real("initializer_range");
  c.init_out_std = c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers));
  return c;
}

}  // namespace decoders
