// SPDX-License-Identifier: Apache-2.0
// Names that people write: which one was meant, and which ones a pattern matches.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace eng {

// A to Z as a to z.
std::string lower_case(std::string text);
// Insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(const std::string& a, const std::string& b);
// All candidates at the smallest distance of at most 2 (of 1 for names up to 4 letters), in their order.
std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates);

// Whether a pattern matches all of a name: `*` stands for any text, also with dots or none, `?` for one character.
bool matches(const std::string& pattern, const std::string& name);
// The names that a pattern is fewest edits away from, at most `most` of them, best first.
std::vector<std::string> nearly_matched(const std::string& pattern, const std::vector<std::string>& names,
                                        std::size_t most);

}  // namespace eng
