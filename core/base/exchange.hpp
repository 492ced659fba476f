// SPDX-License-Identifier: Apache-2.0
// A few bytes between all ranks, outside of steps.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace eng {

// Gives what every rank gave, by rank; all ranks call it. Empty where there is one rank. Throws
// Error(Exit::communication).
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

}  // namespace eng
