// SPDX-License-Identifier: Apache-2.0
// [parallel] pipeline: stages of ranks have some blocks of the model each, and micro-batches go through them.
#pragma once

#include <set>

#include "core/trace/model.hpp"
#include "core/trace/ranks.hpp"
#include "session/config/config.hpp"
#include "session/model/turns.hpp"

namespace eng {

// Most micro-batches of a step. More make plans of minutes: every micro-batch has actions of its own.
constexpr int64_t most_micro_batches = 256;

// Throws Error(Exit::usage) for sections that stages do not work with, and if more is read of the model than its loss:
// logits, activations, gradients, or what a job reads.
void check_pipeline(const Config& config, bool reads_more);

// The first block of each of `stages` virtual stages but the first, of a model without those of its reference: `given`
// names them, or, if that is empty, the one with the most FLOPs of a micro-batch has as few as possible, and then the
// others are as equal as possible. A reference is cut as the model is, and its FLOPs count. Throws Error(Exit::usage)
// if a name is not that of a later block, or if there are fewer blocks than virtual stages.
std::vector<uint32_t> cut_points(const Model& model, uint32_t stages, const std::vector<std::string>& given);

// The first blocks of all virtual stages but the first, those of the reference included.
std::vector<uint32_t> stage_firsts(const Model& model, const Ranks& ranks, const std::vector<std::string>& given);

// The FLOPs of a micro-batch, forward and backward, of each virtual stage between these cut points.
std::vector<double> stage_flops(const Model& model, const std::vector<uint32_t>& firsts);

// Sets the blocks of this rank: its virtual stages. The last block of each is not recomputed as one of a run.
// Throws Error(Exit::usage) as cut_points does, and if virtual stages share a trained parameter that are not the first
// and the last of all.
void cut_stages(Model& model, const Ranks& ranks, const std::vector<std::string>& given);

// The trained parameters of which the first and the last stage have gradients. All stages know them.
std::set<uint32_t> of_two_stages(const Model& model);

inline Pipeline pipeline_of(const Ranks& ranks, uint32_t micro_batches) {
  return {ranks.pipeline, ranks.virtual_stages, micro_batches, ranks.reference_stages};
}

// "embed to layers.7", "embed to layers.3 and layers.16 to layers.19"
std::string blocks_text(const Model& model);

// "stage 2 of 4: layers.8 to layers.15, 30.1 % of the FLOPs; ..."; "" without a pipeline.
std::string pipeline_line(const Model& model, const Ranks& ranks, uint32_t micro_batches);

}  // namespace eng
