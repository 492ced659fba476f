// SPDX-License-Identifier: Apache-2.0
#include "core/config/names.hpp"

#include <algorithm>

namespace eng {
namespace {

// The fewest edits after which `name` matches; text matched by `*` costs nothing.
std::size_t pattern_distance(const std::string& pattern, const std::string& name) {
  std::vector<std::size_t> row(name.size() + 1), before;
  for (std::size_t j = 0; j <= name.size(); ++j) row[j] = j;
  for (const char p : pattern) {
    before = row;
    row[0] = before[0] + (p != '*');
    for (std::size_t j = 1; j <= name.size(); ++j)
      row[j] = p == '*' ? std::min(before[j], row[j - 1])
                        : std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (p != '?' && p != name[j - 1])});
  }
  return row.back();
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  // `star`: the position of the last `*`; `taken`: where the name goes on after it. On a mismatch it takes one more.
  std::size_t p = 0, n = 0, star = std::string::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1, n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

std::vector<std::string> nearly_matched(const std::string& pattern, const std::vector<std::string>& names,
                                        std::size_t most) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& name : names) ranked.emplace_back(pattern_distance(pattern, name), name);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (std::size_t k = 0; k < std::min(most, ranked.size()); ++k) out.push_back(ranked[k].second);
  return out;
}

}  // namespace eng
