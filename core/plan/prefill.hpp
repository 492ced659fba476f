// SPDX-License-Identifier: Apache-2.0
// The programs that read several positions of a prompt at once.
#pragma once

#include <string>

#include "core/plan/plan.hpp"

namespace eng {

// There are programs for longest_prefill positions, half as many, and so on down to `least_prefill`. A plan for
// generation has those shorter than its sequence; "decode" reads the rest of a prompt. The more rows a program has, the
// less it costs to read the weights; several sequences need fewer positions for that.
constexpr int64_t least_prefill = 8;
inline int64_t longest_prefill(int64_t sequences) {
  return sequences == 1 ? 4 * prefill : sequences < 4 ? 2 * prefill : prefill;
}
inline std::string prefill_program(int64_t positions) {
  return positions == prefill ? "prefill" : "prefill " + std::to_string(positions);
}

}  // namespace eng
