// SPDX-License-Identifier: Apache-2.0
#include "session/config/spelling.hpp"

#include <algorithm>

namespace eng {

// Longer names are not misspelled keys, and the distance takes quadratic time.
constexpr std::size_t longest_name = 64;

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      d[i][j] = i + j;
      if (i == 0 || j == 0) continue;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d.back().back();
}

std::vector<std::string> nearest(const std::string& name, const std::vector<std::string>& candidates) {
  std::vector<std::string> found;
  std::size_t best = name.size() <= 4 ? 1 : 2;
  for (const std::string& candidate : candidates) {
    if (name.empty() || name.size() > longest_name || candidate.size() > longest_name) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) found.clear();
    if (distance <= best) found.push_back(candidate);
    best = std::min(best, distance);
  }
  return found;
}

}  // namespace eng
