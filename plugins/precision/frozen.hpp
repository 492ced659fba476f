// SPDX-License-Identifier: Apache-2.0
// The option `frozen` of every number format: a packed type for frozen matrices.
#pragma once

#include "engine/policy.h"

namespace precision {

class Frozen {
 public:
  eng_status read(const eng_options* options, eng_error* error);
  // True if the option decides the type of this state, which then is in `io`.
  bool place(const eng_unit* unit, int32_t role, eng_view* io) const;
  // True if a move is to or from a packed type.
  bool moves(const eng_move* m) const { return packed_ && (m->from->dtype == ENG_U8 || m->to->dtype == ENG_U8); }
  eng_status move(eng_build* b, const eng_move* m, eng_error* error) const;

 private:
  int32_t packed_ = 0;  // ENG_PACKED_*; 0: as other weights
};

}  // namespace precision
