// SPDX-License-Identifier: Apache-2.0
// Orders actions across queues: which earlier actions of other queues each one waits for.
#pragma once

#include <array>

#include "core/plan/plan.hpp"

namespace eng {

// How far each queue has surely come.
using Clock = std::array<uint32_t, queue_count>;

// Read-after-write, write-after-read and write-after-write per byte range, minus what is already implied.
// At a segment's border all queues join.
void place_waits(Plan& plan);

// What is complete before each action of the segment starts, from queue order and waits alone. `done`: how far each
// queue came in the segments before it, all of which are complete.
struct Order {
  std::vector<Clock> before;       // per action
  std::vector<uint32_t> position;  // per action: how many of its queue came before it
  Clock end;                       // when all of it is complete
};
Order order_of(const Segment& segment, const Clock& done = {});

}  // namespace eng
