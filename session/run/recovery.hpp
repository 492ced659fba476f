// SPDX-License-Identifier: Apache-2.0
// [checkpoint] memory_every, when a run begins again: the step that is only in the memory of hosts goes to the disk.
#pragma once

#include "session/run/run.hpp"

namespace eng {

// The folder for the copies in memory of the parts of this attempt of a run; "" without the key.
std::filesystem::path copies_of(const Config& config, const std::filesystem::path& run, int64_t attempt);

// The newest step above the undamaged checkpoints of the run of which the memory of the hosts has all parts becomes a
// checkpoint of the run. What is damaged is passed over, with a note. All ranks call it; `place` is of rank 0. Throws
// Error(disk, communication).
void recover(const Config& config, Member& member, const RunPlace& place, OpeningListener& listener);

}  // namespace eng
