// SPDX-License-Identifier: Apache-2.0
// The time of one action of a plan, by the rates of a machine.
#pragma once

#include "session/planning/estimate.hpp"

namespace eng {

// The time of one action, and what limits it.
struct Cost {
  double seconds = 0;
  BoundBy by = BoundBy::launches;
};
// The longest of its FLOPs, its bytes and a launch; what a kernel does before or after that is added.
Cost cost_of(const Plan& plan, const Topology& topology, const Action& action, const Machine& machine);

}  // namespace eng
