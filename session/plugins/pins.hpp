// SPDX-License-Identifier: Apache-2.0
// Plugins that a configuration or a run ties to the bytes of a file.
#pragma once

#include "core/registry/registry.hpp"

namespace eng {

// Pins plugins to a sha256 ("id=hex"): a file with another one is not loaded. The error then names `by`, and its help
// is `help`. Throws Error(Exit::usage) for an unknown id or a malformed hash.
void pin_plugins(Registry& registry, const std::vector<std::string>& hashes, const std::string& by = "[plugins] sha256",
                 const std::string& help = "");

}  // namespace eng
