// SPDX-License-Identifier: Apache-2.0
// Ops that plugins bring (engine/op.h). Once loaded they are ops like all others.
#pragma once

#include <string>

#include "core/registry/registry.hpp"
#include "core/trace/op.hpp"

namespace eng {

// Makes the ops of every plugin that `registry` has loaded known to find_op, for the rest of the process, as plugins
// are. Throws Error(Exit::environment) with the plugin, the op and what is wrong.
void load_ops(Registry& registry);
const Op* find_plugin_op(const std::string& id);

}  // namespace eng
