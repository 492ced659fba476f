// SPDX-License-Identifier: Apache-2.0
// Patterns of names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace eng {

// Matches a whole name against a pattern: `*` stands for any text (also empty or with dots), `?` for one character.
bool matches(const std::string& pattern, const std::string& name);
// The `most` names that need the fewest edits to match the pattern, best first.
std::vector<std::string> nearly_matched(const std::string& pattern, const std::vector<std::string>& names,
                                        std::size_t most);

}  // namespace eng
