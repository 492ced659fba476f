// SPDX-License-Identifier: Apache-2.0
// [train] freeze: parameters that keep their values in training.
#pragma once

#include "core/trace/model.hpp"

namespace eng {

// Freezes what the patterns match, beside what is declared frozen. Throws Error(Exit::usage) for a pattern that matches
// nothing, or if no parameter is left to train.
void freeze(Model& model, const std::vector<std::string>& patterns);

}  // namespace eng
