// SPDX-License-Identifier: Apache-2.0
// The whole way from a model to a plan that can run. Stands above the folders it calls one after the other.
#pragma once

#include "core/plan/planner.hpp"

namespace eng {

// Traces the model with micro-batches of (B, T) and derives the backward of every template.
// `dtype` is that of activations and weights as compute reads them. Parameters that a pattern of `freeze` matches are
// frozen: blocks get a template for each set of frozen parameters, and no backward where no other parameter needs it.
// Throws Error naming the plugin, the block and the op that refused.
Model trace_model(const std::string& name, const eng_model& table, const Section& options, int64_t micro_batch,
                  int64_t sequence_length, int32_t dtype, const std::vector<std::string>& freeze = {});

// Units, homes, emission, waits, layout, verification.
Plan make_plan(const PlanRequest& request);

}  // namespace eng
