// SPDX-License-Identifier: Apache-2.0
// The reasons for the waits of a plan.
#pragma once

#include <vector>

#include "train.hpp"

namespace devices {

// A segment of program "train".
eng::Segment& segment(eng::Plan& plan, size_t s);

// Earlier actions that are no longer ordered before a later one, although one of them writes bytes that the other uses.
// What a collective writes in the place of its own input stays as it is.
std::vector<uint32_t> left_open(const eng::Plan& plan, const eng::Segment& full, const eng::Segment& without);

// The plan without the wait w of an action.
eng::Plan without_wait(const eng::Plan& plan, size_t s, size_t action, size_t w);

}  // namespace devices
