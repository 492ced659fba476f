// SPDX-License-Identifier: Apache-2.0
// From a traced model and its policies to the programs of a step.
#pragma once

#include "core/plan/request.hpp"

namespace eng {

// Makes units and homes, emits the programs and their waits. Buffers have no offsets yet: make_plan
// (core/program/program.hpp) places them.
Plan emit_plan(const PlanRequest& request);

}  // namespace eng
