// SPDX-License-Identifier: Apache-2.0
// What `engine plugins` prints.
#pragma once

#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// One line per thing provided; with `why` also the places looked and every refused file with its reason.
std::string print_plugins(const Registry& registry, bool why);
// Why there is no such plugin: the places looked, why each candidate was refused, what there is instead.
std::string explain_missing(const Registry& registry, const std::string& kind, const std::string& name);
// One plugin with all its options and presets; `what` is its id or the name of something it provides. "" if none.
std::string print_plugin(const Registry& registry, const std::string& what);

}  // namespace eng
