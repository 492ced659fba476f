// SPDX-License-Identifier: Apache-2.0
// A plan as text for users and as JSON for programs.
#pragma once

#include <optional>
#include <string>

#include "core/autograd/recompute.hpp"
#include "core/plan/plan.hpp"
#include "session/report/peak.hpp"
#include "session/report/traffic.hpp"

namespace eng {

struct ReportContext : Beside {
  std::string title;          // "llama 7b, micro-batch 8 x 1, sequence 256, fp32"
  uint64_t device_total = 0;  // 0: unknown
  Machine machine;
  Kept kept;                // activations, by [recompute]
  uint64_t checkpoint = 0;  // bytes of a checkpoint's tensors, for any number of ranks
  int64_t checkpoints = 0;  // number kept on disk; 0: all
};

// The most bytes of one kind of transients that are in use at a time in program "train", actions taken in list order.
// In one arena, or, without its index, in all of them.
uint64_t most_live(const Plan& plan, Line line, std::optional<uint32_t> arena = {});

const char* to_string(Queue queue);
std::string plan_text(const Plan& plan, const ReportContext& context);  // the memory report
std::string plan_json(const Plan& plan, const ReportContext& context);
std::string plan_dump(const Plan& plan);  // every action with its buffers, waits and addresses

}  // namespace eng
