// SPDX-License-Identifier: Apache-2.0
// Checks that the plans of all ranks fit together: faults that no rank can see in its own plan.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace equality {

// The faults between the plans of all ranks, in their order, each of which is right by itself: members of a group that
// come to another collective of it than others (op, shapes, attributes, label), or would wait for each other.
std::vector<std::string> disagreements(std::span<const eng::Plan> plans);

}  // namespace equality
