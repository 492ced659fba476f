// SPDX-License-Identifier: Apache-2.0
// What is wrong with a configuration, as people see it.
#pragma once

#include <string>
#include <vector>

#include "core/config/problems.hpp"

namespace eng {

// Every problem with its place, an excerpt of the file and what to change.
std::string tell(const ConfigError& error);

// Insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(const std::string& a, const std::string& b);
// All candidates at the smallest distance of at most 2 (of 1 for names up to 4 letters), in their order.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace eng
