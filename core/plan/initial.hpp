// SPDX-License-Identifier: Apache-2.0
// The first values of parameters.
#pragma once

#include "core/plan/moves.hpp"

namespace eng {

// Emits program "init", which makes all masters and the weights from them, and "publish", which makes only the weights.
void emit_initial(const PlanRequest& request, Plan& plan, Emitter& emitter, const Homes& homes, Moves& moves);

}  // namespace eng
