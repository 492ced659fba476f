// SPDX-License-Identifier: Apache-2.0
// Activations by name: what a program may ask a step to keep.
#pragma once

#include "core/plan/request.hpp"

namespace eng {

// The outputs of the ops that a step computes in the forward, in the model's order. "layers.0.linear.2" is the output
// of the third such op of the block layers.0, and "layers.0.attention.0:1" the second output of its op; an output of
// the block itself is "layers.0.output" (or "layers.0.output:1") as well.
std::vector<Activation> activations_of(const Model& model);
// The activations with a name that one of the patterns matches (config/names.hpp), under the names that are matched.
// Throws Error(Exit::usage) for a pattern that matches none, with the nearest names.
std::vector<Activation> select_activations(const Model& model, const std::vector<std::string>& patterns);

// All of them, for people and as a JSON array of objects.
std::string activations_text(const Model& model);
std::string activations_json(const Model& model);

}  // namespace eng
