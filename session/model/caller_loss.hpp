// SPDX-License-Identifier: Apache-2.0
// [loss] plugin = "caller": the caller of a session reads the logits and gives the gradient of its loss by them.
#pragma once

#include "core/trace/model.hpp"
#include "session/config/config.hpp"

namespace eng {

// True if the loss of the configuration is the caller's.
bool caller_loss(const Config& config);
// The loss of the traced model: the sum of logits times G, which is a constant of the last block, (1, B T V) in f32. By
// the logits its gradient is G, whatever their values are, so that a step with the caller's gradient in G is the
// caller's step. Its own value means nothing.
Loss make_caller_loss();
// Throws Error(Exit::usage) for a model with random ops: the caller would read the logits of another draw.
void check_caller_loss(const Model& model);
// The number of G among the constants of the plan. `model`: the traced one.
size_t caller_constant(const Model& model, const std::vector<std::shared_ptr<const Constant>>& all);

}  // namespace eng
