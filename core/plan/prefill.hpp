// SPDX-License-Identifier: Apache-2.0
// The programs that read several positions of a prompt at once.
#pragma once

#include <string>

#include "core/plan/plan.hpp"

namespace eng {

// There are programs for `prefill` positions, half as many, and so on down to `least_prefill`. A plan for generation
// has those shorter than its sequence; "decode" reads the rest of a prompt.
constexpr int64_t least_prefill = 8;
inline std::string prefill_program(int64_t positions) {
  return positions == prefill ? "prefill" : "prefill " + std::to_string(positions);
}

}  // namespace eng
