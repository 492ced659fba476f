// SPDX-License-Identifier: Apache-2.0
#include "core/config/names.hpp"

#include <algorithm>

namespace eng {
namespace {

// Longer names are not misspelled keys, and the distance takes quadratic time.
constexpr std::size_t longest = 64;

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
    if (name.empty() || name.size() > longest || candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best) found.clear();
    if (distance <= best) found.push_back(candidate);
    best = std::min(best, distance);
  }
  return found;
}

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
