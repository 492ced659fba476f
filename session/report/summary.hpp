// SPDX-License-Identifier: Apache-2.0
// Runs in numbers: a table with a column for each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "session/report/history.hpp"

namespace eng {

using SummaryRow =
    std::pair<std::string, std::vector<std::string>>;  // what it is; its value of each run, "" if unknown

// Rows that no run has a value for are left out.
std::vector<SummaryRow> summary(const std::vector<History>& runs);
// The keys of the resolved configurations that do not have the same value in all runs; none for a single run.
std::vector<SummaryRow> differing_settings(const std::vector<History>& runs);

}  // namespace eng
