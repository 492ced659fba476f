// SPDX-License-Identifier: Apache-2.0
// What is wrong with a configuration, as people see it.
#pragma once

#include <string>
#include <vector>

#include "core/config/names.hpp"
#include "session/config/problems.hpp"

namespace eng {

// Every problem with its place, an excerpt of the file and what to change.
std::string tell(const ConfigError& error);

}  // namespace eng
