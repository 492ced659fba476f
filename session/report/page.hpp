// SPDX-License-Identifier: Apache-2.0
// Runs as one HTML page that needs nothing else: `engine report`.
#pragma once

#include <string>
#include <vector>

#include "session/report/history.hpp"

namespace eng {

// Every page begins with this.
inline constexpr const char* page_mark = "<!DOCTYPE html>\n<!-- engine report -->\n";

// Charts of the runs over each other, a table of numbers, and the keys in which the runs differ. Runs without a step
// are reported and left out; one must have some.
std::string report_page(const std::vector<History>& runs);

}  // namespace eng
