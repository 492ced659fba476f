// SPDX-License-Identifier: Apache-2.0
// Phi-3 (Abdin et al. 2024) and Phi-4. The description splits the matrices of its files.
#include "models.hpp"

namespace decoders {

decoder::Config read_phi3(const model::Reader& in) {
  decoder::Config c = decoder::read_relative(in, in.real("partial_rotary_factor"));
  decoder::name_maps(c, false, false, false);
  decoder::read_window(in, c);
  c.dropout = in.real("resid_pdrop");
  // Its files give this length also where nothing is scaled.
  c.rope.original_positions = in.integer("original_max_position_embeddings");
  if (c.rope.type == decoder::RopeType::longrope) {
    if (c.rope.original_positions < 2) model::invalid("original_max_position_embeddings must be at least 2");
    const double longer = static_cast<double>(c.max_positions) / static_cast<double>(c.rope.original_positions);
    c.rope.factor = in.real_or("rope_factor", longer);
  }
  return c;
}

}  // namespace decoders
