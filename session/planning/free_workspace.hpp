// SPDX-License-Identifier: Apache-2.0
// [device] attention_workspace = "free": as much scratch as the plan has anyway. Most of it lies where activations have
// been freed.
#pragma once

#include "session/planning/setup.hpp"

namespace eng {

// The number that [device] attention_workspace stands for, and how it was found.
struct Workspace {
  uint64_t bytes = 0;
  std::string origin;
};
// For training by the ranks of `world`, else the number by default; nothing if the key has a number already, or
// [device] plugin has no such key. "free" is the most for which the planned peak of no stage's device is larger than
// with the number by default; one of the numbers of bytes with which the library serves a call more. The plans are
// those that `engine plan` makes, so that a run and its plan agree; ranks of a stage have equal plans. Nothing runs.
// Throws Error(Exit::usage) for "free" with attention = "cudnn".
std::optional<Workspace> planned_workspace(const Config& config, Registry& registry, const World& world,
                                           const Readable& readable = {});
// Writes it into the configuration, if there is one.
void settle(Config& config, const std::optional<Workspace>& workspace);
// The reverse, for "free": other numbers of ranks have another one.
void unsettle(Section& device);
// A sentence on "free" in a configuration that `settle` was given; "" for any other.
std::string workspace_text(const Section& device);

}  // namespace eng
