// SPDX-License-Identifier: Apache-2.0
// [parallel] pipeline: stages of ranks have some blocks of the model each, and micro-batches go through them.
#pragma once

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"
#include "session/config/config.hpp"

namespace eng {

// Throws Error(Exit::usage) for sections that stages do not work with, and if more is read of the model than its loss:
// logits, activations, gradients, or what a job reads.
void check_pipeline(const Config& config, bool reads_more);

// The first block of each stage but the first: `given` names them, or, if that is empty, the stage with the most FLOPs
// of a micro-batch has as few as possible, and then the others are as equal as possible. Throws Error(Exit::usage) if a
// name is not that of a later block, or if there are fewer blocks than stages.
std::vector<uint32_t> cut_points(const Model& model, uint32_t stages, const std::vector<std::string>& given);

// Sets the blocks of this rank's stage. The last block of a stage is not recomputed as one of a run. Throws
// Error(Exit::usage) as cut_points does, and if stages share a parameter that are not the first and the last.
void cut_stages(Model& model, const Ranks& ranks, const std::vector<std::string>& given);

// A part of the step of a stage: what happens to a micro-batch. `..._back`: gradients.
struct StageTurn {
  enum What : uint8_t { receive, forward, send, receive_back, backward, send_back } what;
  uint32_t micro;
  bool operator==(const StageTurn&) const = default;
};
// The step of a stage, one forward and one backward in turn (1F1B; Narayanan et al. 2019, arXiv 1806.03377): of stages
// p and p + 1, a gradient comes back before the next activation is sent, so that both have one order of exchanges.
std::vector<StageTurn> turns_of(uint32_t stage, uint32_t stages, uint32_t micro_batches);

// Seconds of a micro-batch on a stage.
struct StageTime {
  double forward = 0, backward = 0;
};
// The seconds until all stages have ended, if each does its turns one after the other and an exchange takes `exchange`
// seconds of both its stages. Throws Error(Exit::bug) if stages wait for each other for ever.
double pipeline_seconds(const std::vector<StageTime>& stages, uint32_t micro_batches, double exchange);

// "stage 2 of 4: layers.8 to layers.15, 30.1 % of the FLOPs; ..."; "" without a pipeline.
std::string pipeline_line(const Model& model, const Ranks& ranks, uint32_t micro_batches);

}  // namespace eng
