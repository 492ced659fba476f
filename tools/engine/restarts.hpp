// SPDX-License-Identifier: Apache-2.0
// engine run --restarts: starts the ranks again after a failure, with those that are left.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/ranks/restarts.hpp"
#include "tools/engine/launch.hpp"

namespace eng {

struct Relaunch {
  RestartPolicy policy;
  // The words after `engine` that resume a run after so many seconds. `run`: its directory, "" if there is none yet.
  // `reshaped`: the number of ranks is not that of the start.
  std::function<std::vector<std::string>(const std::string& run, bool reshaped, double seconds)> words;
};

// Like launch(), and again after failures. Each restart is told on stderr and recorded in restarts.jsonl of the run.
// No process of an attempt is left when the next begins, or when this returns.
int launch_again(Launch what, const Relaunch& how);

}  // namespace eng
