// SPDX-License-Identifier: Apache-2.0
// Mistral (Jiang et al. 2023) and Ministral (2024): a window of attention in all layers, or in some of them.
#include "models.hpp"

namespace decoders {

decoder::Config read_mistral(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in, 1.0, 0, in.integer("num_key_value_heads"));
  decoder::name_maps(c, false, false, false);
  decoder::read_window(in, c);
  return c;
}

decoder::Config read_ministral(const model::Reader& in) {
  decoder::Config c = read_mistral(in);
  decoder::read_window(in, c, 0, true);
  return c;
}

}  // namespace decoders
