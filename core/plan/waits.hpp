// SPDX-License-Identifier: Apache-2.0
// Orders actions across queues: which earlier actions of other queues each one waits for.
#pragma once

#include <array>

#include "core/plan/plan.hpp"

namespace eng {

// How far each queue has surely come.
using Clock = std::array<uint32_t, queue_count>;

// What is complete before each action of a segment starts, from queue order and waits alone. At a segment's border
// all queues join.
struct Order {
  std::vector<Clock> before;       // per action
  std::vector<uint32_t> position;  // per action: how many of its queue came before it
  Clock end{};                     // when all of it is complete

  // `start`: how far each queue came in earlier segments.
  explicit Order(const Clock& start = {}) : end(start) { last.fill(start); }
  // Takes the next action; waits that point forward mean nothing.
  void add(const Segment& segment, uint32_t action);
  // Adds to `clock` that action `a` is complete.
  void completed(const Segment& segment, uint32_t a, Clock& clock) const;
  // What is complete when the next action of a queue is reached, its waits aside.
  const Clock& reached(Queue queue) const { return last[static_cast<size_t>(queue)]; }

 private:
  std::array<Clock, queue_count> last;
};
Order order_of(const Segment& segment, const Clock& start = {});

// Read-after-write, write-after-read and write-after-write per byte range, minus what is already implied.
void place_waits(Plan& plan);

}  // namespace eng
