// SPDX-License-Identifier: Apache-2.0
// The step of a stage of a pipeline as actions.
#pragma once

#include "core/plan/request.hpp"

namespace eng {

// Label::of of exchanges between stages.
constexpr const char* pipeline_label = "pipeline";

// PlanRequest::stage of this rank, for a plan of `model`, which outlives it; null without a pipeline. Between two
// stages, a value goes as a broadcast in the group of two ranks.
std::function<std::vector<View>(const StepParts&, StagePart)> stage_of(const Ranks& ranks, const Model& model);

}  // namespace eng
