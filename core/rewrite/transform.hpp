// SPDX-License-Identifier: Apache-2.0
// Transforms (engine/transform.h): plugins that replace calls of a traced model by others, before its backward is
// derived.
#pragma once

#include "core/trace/tracing.hpp"
#include "engine/transform.h"

namespace eng {

// An entry of [[transforms]].
struct Transform {
  std::string name;
  eng_transform table{};
  std::shared_ptr<void> self = {};
  std::vector<std::string> targets = {};  // patterns of names of parameters; none: all calls are shown
};
// Throws Error(Exit::usage) with what the plugin refuses.
Transform make_transform(const std::string& name, const eng_transform& table, const Section& options);

// Applies it to every block, and adds a line to Model::transformed. Blocks share a template where they did before and
// still are equal. Throws Error naming the transform, the block and the op; Error(Exit::usage) for a target that
// matches nothing, or if nothing was changed.
void rewrite(Model& model, const Transform& transform, const TraceFor& how);

}  // namespace eng
