// SPDX-License-Identifier: Apache-2.0
// SmolLM3 (Bakouch et al. 2025): some layers do not turn queries and keys (Yang et al. 2025, "Rope to Nope").
#include <string>

#include "models.hpp"

namespace decoders {

decoder::Config read_smollm3(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in, 1.0, 0, in.integer("num_key_value_heads"));
  const bool bias = in.flag("attention_bias");
  decoder::name_maps(c, bias, bias, in.flag("mlp_bias"));
  const int64_t interval = in.size("no_rope_layer_interval");
  for (int64_t layer = 1; layer <= c.layers; ++layer) c.turns.push_back(layer % interval != 0);
  if (!in.given("no_rope_layers")) return c;
  const std::vector<double> listed = in.reals("no_rope_layers");
  if (listed.size() < c.turns.size())
    model::invalid("no_rope_layers has " + std::to_string(listed.size()) + " numbers, and there are " +
                   std::to_string(c.layers) + " layers (num_hidden_layers); give one for each, or remove the list");
  for (size_t k = 0; k < c.turns.size(); ++k) {
    if (listed[k] != 0.0 && listed[k] != 1.0)
      model::invalid("no_rope_layers holds " + model::number(listed[k]) + "; every number must be 0 or 1");
    c.turns[k] = listed[k] == 1.0;
  }
  return c;
}

}  // namespace decoders
