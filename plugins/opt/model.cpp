// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <cmath>
#include <string>

namespace opt {

using model::invalid;
using model::number;

decoder::Config read_options(const model::Reader& in) {
  decoder::Config c = decoder::read_sizes(in, "ffn_dim");
  c.word_width = in.at_least_one("word_embed_proj_dim", in.integer_or("word_embed_proj_dim", c.hidden));
  c.act = in.activation("activation_function");
  c.body = "model.decoder.";
  const bool bias = in.flag("enable_bias");
  c.maps = {{{"self_attn.q_proj", bias},
             {"self_attn.k_proj", bias},
             {"self_attn.v_proj", bias},
             {"self_attn.out_proj", bias},
             {},
             {"fc1", bias},
             {"fc2", bias}}};
  c.layer_norm = true;
  c.affine = in.flag("layer_norm_elementwise_affine");
  const bool before = in.flag("do_layer_norm_before");
  c.norms = before ? decoder::Norms::before : decoder::Norms::behind_sum;
  c.eps = 1e-5;
  c.attention_norm = "self_attn_layer_norm";
  c.ffn_norm = "final_layer_norm";
  c.final_norm = before && !in.flag("_remove_final_layer_norm") ? "final_layer_norm" : nullptr;
  c.positions = "embed_positions";
  c.position_offset = 2;
  c.scale_query = true;  // as the model was trained
  c.dropout = in.real("dropout");
  if (c.dropout < 0.0 || c.dropout >= 1.0)
    invalid("dropout is " + number(c.dropout) + "; it must be at least 0 and below 1");
  if (const double p = in.real("attention_dropout"); p != 0.0)
    invalid("attention_dropout is " + number(p) +
            "; dropout of attention weights is not supported: set it to 0 (all published OPT models have 0)");
  if (const double p = in.real("layerdrop"); p != 0.0)
    invalid("layerdrop is " + number(p) + "; skipping layers at random is not supported: set it to 0");
  const std::string init = in.text("init");
  if (init != "hf" && init != "paper") invalid("init '" + init + "' is not known; use hf or paper");
  c.init_std = in.real_or("init_std", init == "paper" ? 0.006 : 0.02);
  if (c.init_std < 0.0) invalid("init_std is " + number(c.init_std) + "; it must not be negative");
  c.init_out_std = init == "paper" ? c.init_std / std::sqrt(2.0 * static_cast<double>(c.layers)) : c.init_std;
  return c;
}

}  // namespace opt
