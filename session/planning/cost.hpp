// SPDX-License-Identifier: Apache-2.0
// The time of one action of a plan, by the rates of a machine.
#pragma once

#include <optional>

#include "session/planning/estimate.hpp"

namespace eng {

// The time of one action, and what limits it.
struct Cost {
  double seconds = 0;
  BoundBy by = BoundBy::launches;
};
// The longest of its FLOPs, its bytes and a launch; what a kernel does before or after that is added.
Cost cost_of(const Plan& plan, const Topology& topology, const Action& action, const Machine& machine);

// Bytes of scratch with which cuDNN computes a call on a GPU of this architecture (90 for sm_90); nothing if it does
// not, as plugins/cuda/attention_choice.cpp has it. For a plan whose plugin is not asked.
std::optional<uint64_t> attention_scratch(const Call& call, uint32_t arch);
// The most that one of the calls of a plan takes that [device] attention_workspace leaves to cuDNN.
uint64_t library_scratch(const Plan& plan, const Target& target);

}  // namespace eng
