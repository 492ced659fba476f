// SPDX-License-Identifier: Apache-2.0
// The text that `engine plan --fit` prints, and the proposals of an error about memory.
#pragma once

#include "session/planning/fit/search.hpp"

namespace eng {

std::string fit_text(const Fit& fit);
std::string fit_json(const Fit& fit);
// A line for each setting that fits: "recompute.policy=full (the same numbers): 1.2 GiB". Those that keep every number
// come first, those in another number format last. Then the remedies.
std::vector<std::string> proposals(const Fit& fit);
// The most processor time for the search for proposals; and the line that says that it was ended, or "".
constexpr double seconds_for_proposals = 20;
std::string cut_text(const Fit& fit);

}  // namespace eng
