// SPDX-License-Identifier: Apache-2.0
// Checks before memory is allocated: plans that are too large, and checkpoints that are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/data/data.hpp"
#include "session/planning/peak.hpp"
#include "session/planning/setup.hpp"

namespace eng {

// The memory that a run needs in addition to its arenas.
Beside beside(const Setup& setup);
// The rank that stands for all of these ranks, which need not exist; for 1, which is the default, those that read
// the same samples. Divides the batch and the threads among them.
World planned_world(Config& config, uint32_t ranks);
// The memory that there is for it.
Available available(const Setup& setup);
// The memory that a rank needs, of that which its device reports.
uint64_t planned_peak(const Setup& setup);
// The memory that the ranks on this machine need together; for a device with separate memory, that of one rank.
uint64_t machine_peak(const Setup& setup);
bool fits(const Setup& setup);
// The code with which a run ends that is refused for its memory; Exit::done if it fits.
Exit refusal(const Setup& setup);
Exit refusal(const Excess& more, bool host_memory);
// Makes an object of the device, as a run does first, and gives it back: throws Error(Exit::environment) with the
// plugin's reason where it is not there or not usable. Described devices are not asked.
void check_device(Registry& registry, const Setup& setup);
// Throws Error(host or device memory) if the plan does not fit, with the proposals of find_fit.
void check_fits(const Config& config, Registry& registry, const Setup& setup);
// Like check_fits, for a setup from make_evaluation. The model is fixed, so the edits change only the batch.
void check_evaluation_fits(const Config& config, Registry& registry, const Setup& setup);
// Like check_fits, for a setup with a job of this name; without proposals.
void check_job_fits(const Setup& setup, const std::string& name);
// Adds what the opened data keeps in memory. Throws the same error if the plan does not fit with it.
void count_data(Setup& setup, const Data& data);

// The bytes of a checkpoint, which all ranks write together.
uint64_t written_bytes(const Plan& plan);
// The checkpoints that stay: [checkpoint] keep, at least one, and the best.
int64_t kept_checkpoints(const Config& config);
// Throws Error(disk) if the file system of `directory`, which need not exist yet, has too few free bytes for the
// checkpoints that a run writes from step `from` on, of which `present` are there. Returns the free bytes; UINT64_MAX
// if the file system does not tell.
uint64_t check_disk(const Config& config, const Plan& plan, const std::filesystem::path& directory, int64_t from = 0,
                    size_t present = 0);

}  // namespace eng
