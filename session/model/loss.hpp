// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/registry/registry.hpp"
#include "core/trace/model.hpp"
#include "session/config/config.hpp"

namespace eng {

// The loss of [loss]. `described`: the device whose kernels a described card needs, or "". `training`: false for a
// program that generates text, which has no use for the loss of a plugin. Throws Error(Exit::usage) with what a plugin
// refuses.
Loss make_loss(const Config& config, Registry& registry, const std::string& described, bool training);

}  // namespace eng
