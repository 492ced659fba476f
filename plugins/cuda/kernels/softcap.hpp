// SPDX-License-Identifier: Apache-2.0
// The cap of logits (engine/ops_softcap.h).
#pragma once

#include "../../common/cuda/glue.hpp"
#include "engine/ops_softcap.h"

namespace cuda {

inline float need_cap(const Call& c) {
  const double cap = c.real("softcap");
  need(cap > 0 && cap <= 3e38, "softcap must be above 0, and finite");
  return static_cast<float>(cap);
}

}  // namespace cuda
