// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <cmath>
#include <string>

#include "../common/model.hpp"

namespace opt {

using model::invalid;
using model::number;

Config read_config(const eng_options* options, eng_error* error) {
  const model::Reader in(options, error);
  Config c{};
  c.vocabulary = in.size("vocab_size");
  c.hidden = in.size("hidden_size");
  c.ffn = in.size("ffn_dim");
  c.layers = in.size("num_hidden_layers");
  c.heads = in.size("num_attention_heads");
  c.max_positions = in.size("max_position_embeddings");
  c.word_width = in.at_least_one("word_embed_proj_dim", in.integer_or("word_embed_proj_dim", c.hidden));
  if (c.hidden % c.heads != 0)
    invalid("hidden_size (" + std::to_string(c.hidden) + ") must be a multiple of num_attention_heads (" +
            std::to_string(c.heads) + "); change one of them");
  c.act = in.activation("activation_function");
  c.norm_before = in.flag("do_layer_norm_before");
  c.final_norm = c.norm_before && !in.flag("_remove_final_layer_norm");
  c.bias = in.flag("enable_bias");
  c.affine = in.flag("layer_norm_elementwise_affine");
  c.tied = in.flag("tie_word_embeddings");
  c.z_loss = in.real("z_loss");
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
