// SPDX-License-Identifier: Apache-2.0
// Plugins that are taken where no configuration names one.
#pragma once

#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// The name of the plugin of this kind whose description says `usual = true` (engine/plugin.h); of several, the one that
// was found first. `use`, for the message: "whose kernels compute in memory of tiers". Throws Error(Exit::environment)
// if there is none.
std::string usual(const Registry& registry, const std::string& kind, const std::string& use);

}  // namespace eng
