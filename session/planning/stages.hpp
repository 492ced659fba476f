// SPDX-License-Identifier: Apache-2.0
// The plans of all stages of a pipeline, and the time that they wait for each other.
#pragma once

#include "session/model/pipeline.hpp"
#include "session/planning/peak.hpp"
#include "session/planning/setup.hpp"

namespace eng {

struct Machine;

// The first rank of a stage.
struct StagePlan {
  std::vector<std::pair<std::string, std::string>> parts = {};  // per virtual stage: its first and its last block
  std::string text = {};                                        // "embed to layers.7"
  uint64_t arena = 0;                                           // bytes of the device's memory
  uint64_t peak = 0;                  // bytes of what a rank needs of the memory that its device reports
  std::vector<StageTime> times = {};  // of a micro-batch, per virtual stage, with all but waiting for other stages
  double once = 0;                    // seconds of what a step does once: its update, and sums of all micro-batches
  double exchange = 0;                // seconds of one exchange with a neighbour
  double seconds() const {            // of a micro-batch
    double sum = 0;
    for (const StageTime& time : times) sum += time.forward + time.backward;
    return sum;
  }
};
// That of the plan of one of its ranks.
StagePlan stage_plan(const Setup& setup, const Config& config, const Machine& machine);

// Micro-batches of a step that has the transients of one with all of them: from twice as many as stages on, or some
// groups of them with virtual stages, each takes the place of an earlier one.
uint32_t enough_micro_batches(const Pipeline& all);
// The bytes that a step of `all` micro-batches takes more than this plan of a step with enough of them: tokens and, of
// host memory, lists.
struct Growth {
  uint64_t device = 0, host = 0;
};
Growth growth(const Setup& setup, uint32_t all);
// `peak` of a rank with so much more.
Peak with_more(Peak peak, const Growth& more, const Setup& setup);

// Plans every stage of the pipeline of `own`, which is of one of them; none without a pipeline. The others are planned
// with enough micro-batches. Nothing runs.
std::vector<StagePlan> plan_stages(const Config& config, Registry& registry, const Setup& own, const Machine& machine);

// The seconds of a step, in which stages wait for each other; and the part of the passes in which the slowest one does.
double step_seconds(const std::vector<StagePlan>& stages, const Pipeline& pipeline);
double bubble(const std::vector<StagePlan>& stages, const Pipeline& pipeline);

// A line for each stage and, if `timed`, one of the bubble; "" without a pipeline.
std::string stages_text(const std::vector<StagePlan>& stages, const Pipeline& pipeline, bool timed);

}  // namespace eng
