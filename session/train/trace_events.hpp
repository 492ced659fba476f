// SPDX-License-Identifier: Apache-2.0
// When each action of some steps ran; an executor fills it.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/execute/executor.hpp"

namespace eng {

class Trace final : public ActionRecorder {
 public:
  struct Event : ActionRecorder::Event {
    int64_t step;
  };
  // For steps first to last, with this many actions each. All memory is allocated here.
  Trace(int64_t first, int64_t last, size_t actions)
      : first_(first), last_(last), all_(static_cast<size_t>(last - first + 1) * actions) {}
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  // The recorder of this step: this object, or nullptr.
  Trace* of(int64_t step) {
    step_ = step;
    return first_ <= step && step <= last_ ? this : nullptr;
  }
  // Any thread. Events beyond the allocated memory are dropped.
  void add(const ActionRecorder::Event& event) override {
    if (const size_t at = next_.fetch_add(1, std::memory_order_relaxed); at < all_.size()) all_[at] = {event, step_};
  }
  // Sorted by end time. Call it while nothing runs.
  std::vector<Event> events() const {
    std::vector<Event> out(all_.begin(), all_.begin() + static_cast<int64_t>(std::min(next_.load(), all_.size())));
    std::stable_sort(out.begin(), out.end(), [](const Event& a, const Event& b) { return a.end < b.end; });
    return out;
  }

 private:
  int64_t first_, last_, step_ = 0;
  std::vector<Event> all_;
  std::atomic<size_t> next_{0};
};

// Actions that one run of a program executes.
inline size_t executed_actions(const Program& program) {
  size_t n = 0;
  for (const Segment& segment : program.segments) n += segment.repeat * segment.actions.size();
  return n;
}

}  // namespace eng
