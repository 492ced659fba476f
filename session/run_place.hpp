// SPDX-License-Identifier: Apache-2.0
// Where a run lies and what it goes on from.
#pragma once

#include "session/run.hpp"
#include "session/run_dir.hpp"

namespace eng {

struct RunPlace {
  std::optional<RunDir> dir;                  // rank 0's, once it is there
  std::optional<std::filesystem::path> from;  // a checkpoint, on every rank; none: from the first step
};

// Rank 0 finds it and tells the others. A run that is there is locked first; a new one is made later, by new_run, when
// all that can be refused has been accepted. Throws Error(usage, checkpoint, disk).
RunPlace find_place(const RunRequest& request, const Member& member, RunListener& listener);
RunDir new_run(const RunRequest& request, const Config& config);

}  // namespace eng
