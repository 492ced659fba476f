// SPDX-License-Identifier: Apache-2.0
// The window and the cap of scores that a call of attention may have (engine/ops_attention.h).
#pragma once

#include <cmath>

#include "../../common/call.hpp"
#include "engine/ops_attention.h"

namespace cpu {

struct ScoreBounds {
  int64_t window;  // 0: none
  float cap;       // 0: none
};

inline ScoreBounds bounds_of(const common::Call& c) {
  const int64_t window = c.integer_or("window", 0);
  const double cap = c.real_or("softcap", 0);
  if (window < 0) throw common::Error{ENG_INVALID, "window must be at least 0"};
  if (!(cap >= 0 && std::isfinite(cap))) throw common::Error{ENG_INVALID, "softcap must be at least 0, and finite"};
  return {window, static_cast<float>(cap)};
}

}  // namespace cpu
