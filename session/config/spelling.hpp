// SPDX-License-Identifier: Apache-2.0
// Finds the name that a misspelled one meant.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace eng {

// Changes A to Z to a to z, and nothing else.
std::string lower_case(std::string text);
// The number of insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(const std::string& a, const std::string& b);
// All candidates at the smallest distance, in their order; the distance is at most 2, or 1 for names up to 4 letters.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace eng
