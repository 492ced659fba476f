// SPDX-License-Identifier: Apache-2.0
// The plans of all stages of a pipeline, and the time that they wait for each other.
#pragma once

#include "session/model/pipeline.hpp"
#include "session/planning/setup.hpp"

namespace eng {

struct Machine;

// The first rank of a stage.
struct StagePlan {
  std::vector<std::pair<std::string, std::string>> parts = {};  // per virtual stage: its first and its last block
  std::string text = {};                                        // "embed to layers.7"
  uint64_t arena = 0;                                           // bytes of the device's memory
  uint64_t peak = 0;                  // bytes of what a rank needs of the memory that its device reports
  std::vector<StageTime> times = {};  // of a micro-batch, per virtual stage
  double exchange = 0;                // seconds of one exchange with a neighbour
  double seconds() const {            // of a micro-batch
    double sum = 0;
    for (const StageTime& time : times) sum += time.forward + time.backward;
    return sum;
  }
};
// Plans every stage of the pipeline of `own`, which is of one of them; none without a pipeline. Nothing runs.
std::vector<StagePlan> plan_stages(const Config& config, Registry& registry, const Setup& own, const Machine& machine);

// The part of a step in which the slowest stage waits.
double bubble(const std::vector<StagePlan>& stages, uint32_t micro_batches);

// A line for each stage and, if `timed`, one of the bubble; "" without a pipeline.
std::string stages_text(const std::vector<StagePlan>& stages, uint32_t micro_batches, bool timed);

}  // namespace eng
