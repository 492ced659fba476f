// SPDX-License-Identifier: Apache-2.0
// engine data reference.
#pragma once

#include "tools/engine/command.hpp"

namespace eng {

// Computes the file that reference.store of a configuration names, with a progress line on a terminal. Returns 0.
int reference_command(const Common& common, const std::string& target, const std::vector<std::string>& overrides);

}  // namespace eng
