// SPDX-License-Identifier: Apache-2.0
// The programs that read a prompt, several positions at once.
#pragma once

#include <string>

#include "core/plan/plan.hpp"

namespace eng {

// Of `prefill` positions, of half as many, and so on to `least_prefill`. A plan that generates has those that are
// shorter than its sequence; what is left of a prompt is read by "decode".
constexpr int64_t least_prefill = 8;
inline std::string prefill_program(int64_t positions) {
  return positions == prefill ? "prefill" : "prefill " + std::to_string(positions);
}

}  // namespace eng
