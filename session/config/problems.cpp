// SPDX-License-Identifier: Apache-2.0
#include "session/config/problems.hpp"

#include <algorithm>
#include <tuple>

namespace eng {
namespace {

auto rank(const Problem& problem) {
  const TextRange& at = problem.at;
  return std::tuple(at.line > 0 ? 0 : at.override_text.empty() ? 2 : 1, at.line, at.column);
}

std::string summary(const std::string& name, const std::vector<Problem>& problems) {
  std::string out;
  for (const Problem& problem : problems) out += fmt::format("error[{}]: {}\n", problem.code, problem.message);
  return out + fmt::format("{} problem{} in {}", problems.size(), problems.size() == 1 ? "" : "s", printable(name));
}

}  // namespace

ConfigError::ConfigError(const std::string& name, const std::string& text, std::vector<Problem> problems)
    : Error(Exit::usage, summary(name, problems)), name_(name), text_(text), problems_(std::move(problems)) {
  std::stable_sort(problems_.begin(), problems_.end(), [](auto& a, auto& b) { return rank(a) < rank(b); });
}

}  // namespace eng
