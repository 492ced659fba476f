// SPDX-License-Identifier: Apache-2.0
// From a model to a plan that can run: calls the passes in order.
#pragma once

#include "core/plan/request.hpp"
#include "core/rewrite/transform.hpp"

namespace eng {

// Traces the model with micro-batches of (B, T), applies the transforms, and derives the backward of every template.
// `dtype`: of activations, and of weights as compute reads them. Blocks get a template for each set of frozen
// parameters, and no backward if no trained parameter needs it. `runs`, `offered`, `loss`, `stream`: see trace_forward.
// `last` may change the model before its backward is derived. Throws Error naming the plugin, the block and the op that
// refused.
Model trace_model(const std::string& name, const eng_model& table, const Section& options, int64_t micro_batch,
                  int64_t sequence_length, int32_t dtype, bool runs = true, const Offered& offered = {},
                  const std::vector<Transform>& transforms = {}, const Loss& loss = {},
                  const std::function<void(Model&)>& last = {}, int32_t stream = 0);

// Makes the plan: units, homes, emission, waits, layout, verification. Throws Error(Exit::bug) if it is not valid.
Plan make_plan(const PlanRequest& request);

}  // namespace eng
