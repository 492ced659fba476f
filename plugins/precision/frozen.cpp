// SPDX-License-Identifier: Apache-2.0
#include "frozen.hpp"

#include <cstring>

#include "engine/ops.h"

namespace precision {

eng_status Frozen::read(const eng_options* options, eng_error* error) {
  if (!options->is_set(options, "frozen")) return ENG_OK;
  const char* name = nullptr;
  if (eng_status s = options->get_string(options, "frozen", &name, error)) return s;
  packed_ = std::strcmp(name, "int8") == 0         ? ENG_PACKED_INT8
            : std::strcmp(name, "e4m3") == 0       ? ENG_PACKED_E4M3
            : std::strcmp(name, "nf4") == 0        ? ENG_PACKED_NF4
            : std::strcmp(name, "nf4_double") == 0 ? ENG_PACKED_NF4_DOUBLE
                                                   : 0;
  return ENG_OK;
}

bool Frozen::place(const eng_unit* unit, int32_t role, eng_view* io) const {
  const bool weight = role == ENG_ROLE_WEIGHT || role == ENG_ROLE_MASTER;
  if (!packed_ || !weight || !unit || !(unit->flags & ENG_PARAM_FROZEN)) return false;
  io->dtype = packed_;
  return true;
}

eng_status Frozen::move(eng_build* b, const eng_move* m, eng_error* error) const {
  const bool packs = m->to->dtype == ENG_U8;
  const eng_attr attrs[2] = {{"packed", packed_, 0}, {"dtype", m->to->dtype, 0}};
  eng_id out = m->dst;
  return b->api->emit(b, packs ? ENG_OP_PACK : ENG_OP_UNPACK, &m->src, 1, &out, 1, attrs, packs ? 1 : 2, error);
}

}  // namespace precision
