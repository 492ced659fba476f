// SPDX-License-Identifier: Apache-2.0
// The job plugin of [job], as its plan and its run need it.
#pragma once

#include "core/plan/request.hpp"
#include "core/registry/registry.hpp"
#include "session/config/config.hpp"
#include "session/planning/setup.hpp"

namespace eng {

// A part of a job that is done in parts (eng_job.part); `count` is 0 for the whole.
struct JobPart {
  uint32_t index = 0, count = 0;
  bool last() const { return index + 1 == count; }
};

struct MadeJob {
  Job job;                          // for PlanRequest
  std::vector<std::string> states;  // their names, in the order of the rules
  std::vector<char> kept;           // per value of the job
  std::string who() const { return job.asked.who(); }
  // True if a tensor of the plan is saved and read again.
  bool keeps(const Tensor& tensor) const;
};

// Loads the plugin, makes its object and asks what it needs. Throws Error(Exit::usage) for options that it refuses and
// Error(Exit::environment) for a description that breaks its contract, each with the job's name.
MadeJob make_job(const Config& config, Registry& registry, JobPart part = {});
// The job's tensors that are saved.
std::vector<TensorShare> kept_tensors(const Plan& plan, const MadeJob& made);
// Completes a setup for the plan of this job, whose saves are written `asynchronous`ly, as [checkpoint] says, or not.
void count_job(Setup& setup, const MadeJob& made, bool asynchronous);
// Gives [train] the micro-batches of the job's gradients. Throws Error(Exit::usage) where they cannot be divided among
// the ranks.
void take_batch(Config& config, const MadeJob& made, uint32_t ranks);

}  // namespace eng
