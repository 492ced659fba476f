// SPDX-License-Identifier: Apache-2.0
// The number of steps of a run with [train] epochs. It is known before anything is planned: the samples of the data are
// counted first.
#pragma once

#include <string>

#include "session/config/config.hpp"

namespace eng {

class Registry;

// True if the configuration says epochs instead of steps.
bool by_epochs(const Config& config);
// epochs x samples / samples of a step, rounded up to whole steps. Throws Error(Exit::usage) if that is more than
// train.steps may be.
int64_t steps_of(double epochs, uint64_t samples, uint64_t per_step);
// Samples of a step of all ranks. `config` has the batch of a rank (share_batch).
uint64_t samples_per_step(const Config& config, uint32_t ranks);
// If there are epochs, sets train.steps from the data, whose file must be built. Returns epochs_text, or "" without
// epochs. Throws Error(usage, data).
std::string count_steps(Config& config, Registry& registry, uint32_t ranks);
// Counts the steps for a plan, which needs no data: without them, train.steps stays as it is, and the text says so.
std::string try_count_steps(Config& config, Registry& registry, uint32_t ranks);
// "3 epochs of 1234 samples, 16 in a step: 232 steps"
std::string epochs_text(const Config& config, uint64_t samples, uint32_t ranks);
// A resumed run has taken `step` steps with `taken` samples. Throws Error(Exit::usage) unless each had as many samples
// as a step has now: otherwise the steps of all epochs cannot be counted.
void check_epochs(const Config& config, uint64_t samples, int64_t step, uint64_t taken, uint32_t ranks);

}  // namespace eng
