// SPDX-License-Identifier: Apache-2.0
// When each action ran: a ring that an executor fills.
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
    uint32_t call, block;  // as in the plan
    Queue queue;
  };
  // All memory is taken here. `capacity`: the newest so many are kept.
  explicit Trace(size_t capacity) : ring_(capacity) {}
  void add(const Event& event) { ring_[next_.fetch_add(1, std::memory_order_relaxed) % ring_.size()] = event; }
  // By time of their end; while nothing runs.
  std::vector<Event> events() const;

 private:
  std::vector<Event> ring_;
  std::atomic<size_t> next_{0};
};

// Actions that one run of a program executes.
size_t actions_of(const Program& program);

}  // namespace eng
