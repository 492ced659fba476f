// SPDX-License-Identifier: Apache-2.0
// The numbers of one line of metrics.jsonl, whatever it holds.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "session/json.hpp"

namespace eng {

// In the order of the line. A number in an object is named "OBJECT/KEY". Left out: what says where the line belongs (v,
// step, attempt), and what is no number, as the null of a value that is not finite.
std::vector<std::pair<std::string, double>> scalars_of(const Json& line);

}  // namespace eng
