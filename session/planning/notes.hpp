// SPDX-License-Identifier: Apache-2.0
// The notes of a plan: what a user should know of it, although it is valid.
#pragma once

#include "core/execute/device.hpp"
#include "core/plan/request.hpp"
#include "session/cards/target.hpp"

namespace eng {

// Keys of [zero] that have no effect.
std::vector<std::string> idle_keys(const Section& zero, const Plan& plan);
void note_lossy(const Policy& policy, std::vector<std::string>& notes);
// `ranks`: those on this machine.
void note_threads(const Config& config, const Target& target, int64_t ranks, std::vector<std::string>& notes);
// `limit`: the positions of the model; 0: it has no limit.
void note_length(const Section& model, int64_t length, int64_t limit, std::vector<std::string>& notes);
// The ops that the device leaves to another one; "" if it leaves none.
std::string left_ops(const Plan& plan, const Kernels& kernels);

}  // namespace eng
