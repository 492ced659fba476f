// SPDX-License-Identifier: Apache-2.0
// Checks before memory is allocated: plans that are too large, with edits that fit, and weights that do not fit the
// model.
#pragma once

#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/report/peak.hpp"
#include "session/train/setup.hpp"

namespace eng {

// What a run needs in addition to its arenas.
Beside beside(const Setup& setup);
// What a rank needs of the memory that its device reports.
uint64_t planned_peak(const Setup& setup);
// The memory that the ranks on this machine need together; for a device with separate memory, that of one rank.
uint64_t machine_peak(const Setup& setup);
// Edits of the configuration that make the plan of as many ranks as `setup` is for fit into `limit`, cheapest first,
// each tried by planning it: "train.micro_batch=4 train.accumulate=2: 1.2 GiB".
std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, const Setup& setup, uint64_t limit);
// Throws Error(host or device memory) with those edits if the plan does not fit the device.
void check_fits(const Config& config, Registry& registry, const Setup& setup);
// The same for a setup from make_evaluation. The model is fixed, so the edits change only the batch.
void check_evaluation_fits(const Config& config, Registry& registry, const Setup& setup);

}  // namespace eng
