// SPDX-License-Identifier: Apache-2.0
// The directory of a run, and the checkpoint from which it resumes.
#pragma once

#include "session/run/run.hpp"

namespace eng {

using TellRow = std::function<void(const CheckpointRow&)>;
// The newest undamaged checkpoint; none if there are no checkpoints. Tells each that is passed over. Throws
// Error(Exit::checkpoint) if there are some and none is usable: the run does not silently start again. `what` it is:
// "run", "analysis".
std::optional<std::filesystem::path> usable_checkpoint(const RunDir& run, const char* what, const TellRow& passed_over);

// On rank 0. An existing run is locked. A new one is made later, after all checks. Throws Error(usage, checkpoint,
// disk).
RunPlace find_place(const RunRequest& request, const Config& config);
// Then the checkpoint of an existing one: the newest undamaged one of the run and of its second place. Throws
// Error(checkpoint, disk).
void choose_checkpoint(RunPlace& place, const RunRequest& request, const Config& config, RunListener& listener);

}  // namespace eng
