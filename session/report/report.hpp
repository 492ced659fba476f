// SPDX-License-Identifier: Apache-2.0
// A plan as text for users and as JSON for programs.
#pragma once

#include <string>

#include "session/model/heads.hpp"
#include "session/model/recompute.hpp"
#include "session/planning/estimate.hpp"
#include "session/planning/live.hpp"
#include "session/planning/peak.hpp"
#include "session/planning/stages.hpp"
#include "session/planning/traffic.hpp"

namespace eng {

struct ReportContext : Beside {
  std::string title;                            // "llama 7b, micro-batch 8 x 1, sequence 256, fp32"
  std::string card;                             // what describes the device; "": it is here
  bool assumed = false;                         // `device_overhead` has no source
  std::string workspace;                        // of attention: how [device] attention_workspace = "free" was settled
  std::optional<uint64_t> attention_workspace;  // its number, if the plugin of [device] has that key
  bool capped = false;                          // no kernel was asked for its scratch: the workspace is an upper bound
  uint64_t device_total = 0;                    // memory of the device; 0: unknown
  uint64_t arena_total = 0;                     // [device] memory; 0: none is given
  uint64_t storage_total = 0;
  uint64_t host_total = 0;  // memory of a host, if the device's is not the host's; 0: unknown
  uint64_t weights = 0;     // bytes of all weights, padding included: the unit of traffic
  std::optional<HostUpdate> host_update;
  Machine machine;
  double step_at_peak = 0;                   // seconds of a step at the device's peak; 0: unknown
  Kept kept;                                 // activations, by [recompute]
  std::vector<std::string> transforms = {};  // what each did
  std::string parallel = {}, context = {};   // what ranks divide of layers, and of sequences
  std::string pipeline = {};                 // the stage of this rank
  std::vector<StagePlan> stages = {};        // of the pipeline, if they were planned
  std::vector<PaddedHead> heads = {};        // with rows of zeros in memory
  std::string reference = {};                // the frozen second model; "": none
  uint64_t checkpoint = 0;  // bytes of a checkpoint's tensors, for any number of ranks; 0: none is saved
  int64_t checkpoints = 0;  // number kept on disk; 0: all
};

std::string plan_text(const Plan& plan, const ReportContext& context);  // the memory report
std::string plan_json(const Plan& plan, const ReportContext& context);
std::string plan_dump(const Plan& plan);  // every action with its buffers, waits and addresses

}  // namespace eng
