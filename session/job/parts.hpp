// SPDX-License-Identifier: Apache-2.0
// A job in parts: groups of tensors, one after the other, each with a plan of its own ([job] groups).
#pragma once

#include <string>
#include <vector>

#include "session/job/made_job.hpp"
#include "session/json.hpp"
#include "session/planning/peak.hpp"

namespace eng {

struct PlannedPart {
  std::string name;         // "survey", "group 1 of 4", "join"
  uint64_t parameters = 0;  // that are measured
  Peak peak;
  double seconds = 0;            // of a gradient, estimated; 0: there is none, or the rates are not known
  uint64_t measured_device = 0;  // bytes on the device, once it was done
};

// All empty for a job that is done as a whole.
struct JobParts {
  std::vector<std::vector<std::string>> groups;  // names of tensors, in the order of the model
  std::vector<PlannedPart> planned;              // the first part, the groups, the last part
  uint32_t count() const { return static_cast<uint32_t>(planned.size()); }
  // The tensors that are frozen in a part.
  std::vector<std::string> resting(uint32_t part) const;
  uint32_t largest() const;  // the part with the highest peak
};

// Divides the job as [job] groups says, and plans each part for a rank of `world`. The groups are runs of tensors of
// the model, the largest as small as can be. With groups = 0 they are as few as fit. Throws Error(usage) for more
// groups than tensors, and with `refuse` Error(memory) where a part does not fit. `config`: after take_batch.
JobParts divide_job(const Config& config, Registry& registry, const World& world, bool refuse = true);

// After count_job: what the heap of a process keeps of the other parts, which it does as well.
void count_part(Setup& setup, JobPart part);

// Lines of a plan; fields of plan and facts.
std::string parts_text(const JobParts& parts);
Json part_json(const PlannedPart& part);

}  // namespace eng
