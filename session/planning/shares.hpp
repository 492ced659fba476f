// SPDX-License-Identifier: Apache-2.0
// This rank's part of a plan's tensors, as checkpoints name them.
#pragma once

#include "core/plan/plan.hpp"
#include "core/trace/model.hpp"
#include "session/checkpoint/checkpoint.hpp"

namespace eng {

// True if checkpoints have it: other tensors are recomputed by every step.
bool is_saved(const Tensor& tensor);
// The tensors of a checkpoint.
std::vector<TensorShare> saved_tensors(const Plan& plan);
// The part of a checkpoint that this rank writes: not what it holds of another stage's block. The first stage writes
// what policies and transforms keep of their own.
std::vector<TensorShare> written_tensors(const Plan& plan, const Model& model);
std::vector<TensorShare> parameters(const Plan& plan);
// Parameters of the reference model, if it has any of its own.
std::vector<TensorShare> reference_parameters(const Plan& plan);
// True if weights that are read may lack a parameter of the plan. All are then initialised before.
bool has_optional(const Plan& plan);

}  // namespace eng
