// SPDX-License-Identifier: Apache-2.0
// Orders actions across queues: finds the earlier actions of other queues that each one waits for.
#pragma once

#include <array>

#include "core/plan/plan.hpp"

namespace eng {

// Per queue: the number of actions that are certainly complete.
using Clock = std::array<uint32_t, queue_count>;

// The actions that are certainly complete before each action of a segment starts, by queue order and waits alone. All
// queues join between segments.
struct Order {
  std::vector<Clock> before;       // per action
  std::vector<uint32_t> position;  // per action: the number of actions of its queue before it
  Clock end{};                     // when the segment is complete

  // `start`: the progress of each queue in earlier segments.
  explicit Order(const Clock& start = {}) : end(start) { last.fill(start); }
  // Adds the next action of the segment; ignores waits for later actions.
  void add(const Segment& segment, uint32_t action);
  // Updates `clock` with all that is complete when action `a` is.
  void completed(const Segment& segment, uint32_t a, Clock& clock) const;
  // Progress that is complete when the next action of a queue is reached, without its waits.
  const Clock& reached(Queue queue) const { return last[static_cast<size_t>(queue)]; }

 private:
  std::array<Clock, queue_count> last;
};
Order order_of(const Segment& segment, const Clock& start = {});

// The actions of a segment in the order in which one thread enqueues them, or does itself what the host computes,
// reads, writes or exchanges. The latter have the order of the list. Computations and copies of the device come right
// after what they wait for, so that they run while the thread is busy.
std::vector<uint32_t> enqueue_order(const Segment& segment);

// Sets Action::waits: read-after-write, write-after-read and write-after-write per byte range, and Action::after,
// without waits that others imply.
void place_waits(Plan& plan);

}  // namespace eng
