// SPDX-License-Identifier: Apache-2.0
// The directory of a run, and the checkpoint from which it resumes.
#pragma once

#include "session/run/run.hpp"
#include "session/run/run_dir.hpp"

namespace eng {

struct RunPlace {
  std::optional<RunDir> dir;                  // on rank 0, once it exists
  std::optional<std::filesystem::path> from;  // a checkpoint, on every rank; none: from the first step
};

using TellRow = std::function<void(const CheckpointRow&)>;
// The newest undamaged checkpoint; none if there are no checkpoints. Tells each that is passed over. Throws
// Error(Exit::checkpoint) if there are some and none is usable: the run does not silently start again. `what` it is:
// "run", "analysis".
std::optional<std::filesystem::path> usable_checkpoint(const RunDir& run, const char* what, const TellRow& passed_over);

// Rank 0 finds it and sends it to the others. An existing run is locked first. A new one is made later, by new_run,
// after all checks. Throws Error(usage, checkpoint, disk).
RunPlace find_place(const RunRequest& request, const Member& member, RunListener& listener);
RunDir new_run(const RunRequest& request, const Config& config);

}  // namespace eng
