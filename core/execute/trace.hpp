// SPDX-License-Identifier: Apache-2.0
// When each action of some steps ran; an executor fills it.
#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "core/plan/plan.hpp"

namespace eng {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  // One action. It could have begun at `reached`, had it not waited for other queues until `begin`.
  struct Event {
    Clock::time_point reached, begin, end;
    int64_t step;
    uint32_t call, block;  // as in the plan
    Queue queue;
  };
  // Of steps first to last, with so many actions each; all memory is taken here.
  Trace(int64_t first, int64_t last, size_t actions)
      : first_(first), last_(last), all_(static_cast<size_t>(last - first + 1) * actions) {}
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  // What records this step: this, or nothing.
  Trace* of(int64_t step) {
    step_ = step;
    return first_ <= step && step <= last_ ? this : nullptr;
  }
  // Any thread. What is too much is left out.
  void add(Event event) {
    event.step = step_;
    if (const size_t at = next_.fetch_add(1, std::memory_order_relaxed); at < all_.size()) all_[at] = event;
  }
  // By time of their end; while nothing runs.
  std::vector<Event> events() const;

 private:
  int64_t first_, last_, step_ = 0;
  std::vector<Event> all_;
  std::atomic<size_t> next_{0};
};

// Actions that one run of a program executes.
size_t actions_of(const Program& program);

}  // namespace eng
