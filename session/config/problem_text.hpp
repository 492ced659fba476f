// SPDX-License-Identifier: Apache-2.0
// The problems of a configuration as text for users.
#pragma once

#include <string>
#include <vector>

#include "session/config/problems.hpp"

namespace eng {

// Every problem with its place, an excerpt of the file and what to change.
std::string tell(const ConfigError& error);

}  // namespace eng
