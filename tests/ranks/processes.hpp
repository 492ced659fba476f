// SPDX-License-Identifier: Apache-2.0
// The processes of a run that are alive.
#pragma once

#include <chrono>
#include <thread>

#include "../cli/harness.hpp"

namespace cli {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Processes that have `word` on their command line.
inline std::vector<pid_t> processes(const std::string& word) {
  std::vector<pid_t> out;
  for (const std::string& name : names("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (has(read(fs::path("/proc") / name / "cmdline"), word)) out.push_back(std::stoi(name));
  }
  return out;
}

}  // namespace cli
