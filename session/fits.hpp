// SPDX-License-Identifier: Apache-2.0
// Before memory is taken: a plan that is too large and what would make it fit, weights that do not fit the model.
#pragma once

#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/report/peak.hpp"
#include "session/train/setup.hpp"

namespace eng {

// What a run holds beside its arenas.
Beside beside(const Setup& setup);
// What a rank needs of the memory that its device reports.
uint64_t planned_peak(const Setup& setup);
// What the ranks that share this machine's memory need together; of a device with memory of its own, one rank.
uint64_t machine_peak(const Setup& setup);
// Edits of the configuration that make the plan of as many ranks as `setup` is for fit into `limit`, cheapest first,
// each tried by planning it: "train.micro_batch=4 train.accumulate=2: 1.2 GiB".
std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, const Setup& setup, uint64_t limit);
// Throws Error(host or device memory) with those edits if the plan does not fit the device.
void check_fits(const Config& config, Registry& registry, const Setup& setup);
// The same of a setup that make_evaluation gave; the model is what it is, so the edits are of the batch.
void check_evaluation_fits(const Config& config, Registry& registry, const Setup& setup);

}  // namespace eng
