// SPDX-License-Identifier: Apache-2.0
// The choice of the parameters that a precision policy may keep in a packed type (engine/policy.h).
#pragma once

#include "core/plan/request.hpp"

namespace eng {

// Marks the frozen matrices of layers, if the policy packs these. `freeze`: patterns of names, [train] freeze; also
// where nothing is trained. Throws Error(Exit::usage) if there is none to pack.
void choose_packed(Model& model, const Precision& precision, const std::vector<std::string>& freeze);

}  // namespace eng
