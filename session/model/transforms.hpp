// SPDX-License-Identifier: Apache-2.0
// [[transforms]]: which there are, and what they did to a model.
#pragma once

#include "core/rewrite/transform.hpp"
#include "session/config/config.hpp"

namespace eng {

class Registry;

// Loads their plugins, in the order of the configuration. To a plugin whose only target is "all-linear" every call with
// parameters is shown. `described`: the device of a plan, if only its description is
// here; "" otherwise. Throws Error(Exit::usage) for two of one name.
std::vector<Transform> make_transforms(const Config& config, Registry& registry, const std::string& described);

// "lora replaces 14 calls in 2 of 4 blocks, adds 28 tensors, freezes 21; maps: ...", for each transform of a model.
std::vector<std::string> transform_lines(const Model& model);

}  // namespace eng
