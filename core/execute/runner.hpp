// SPDX-License-Identifier: Apache-2.0
// Runs the queues of a plan: on host threads (threads.cpp), or on queues of the device (streams.cpp).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <optional>

#include "core/execute/bound.hpp"

namespace eng {

constexpr size_t index_of(Queue queue) {
  return static_cast<size_t>(queue);
}

// Receives the times of each action. For one queue, calls come from one thread at a time, in the queue's order.
class ActionRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  // One action. From `reached` to `begin` it waited for other queues.
  struct Event {
    Clock::time_point reached, begin, end;
    uint32_t call, label;  // indices into Plan::calls and Plan::labels
    Queue queue;
  };
  virtual void add(const Event& event) = 0;

 protected:
  ~ActionRecorder() = default;
};

class Runner {
 public:
  Runner(const Plan& plan, Device& device, Bound& bound, bool ranks)
      : plan_(plan), device_(device), bound_(bound), ranks_(ranks) {}
  virtual ~Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Called before the first segment of a program.
  void begin() { failed_ = false, waited_.fill(waited_[0].zero()); }
  // Runs one repetition of a segment; when this returns, it has ended or is enqueued.
  virtual void run(size_t program, size_t segment) = 0;
  // Waits until at most one repetition is unfinished.
  virtual void settle() {}
  // Waits for everything begun. Returns the text of an error that was reported too late to know its action.
  virtual std::optional<std::string> finish() = 0;
  // The eng_exec with which an action of a queue is launched outside of run().
  virtual eng_exec where(Queue) const { return {sizeof(eng_exec), ENG_EXEC_SYNC, nullptr}; }
  virtual void record(ActionRecorder* recorder) { recorder_ = recorder; }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Error failure() const { return Error(exit_, failure_); }
  double waited(bool tiers) const { return std::chrono::duration<double>(waited_[tiers]).count(); }

 protected:
  using Clock = ActionRecorder::Clock;
  // The first failure is kept; after it, nothing more is launched, but waits are still released so that no thread
  // hangs.
  void launch(const BoundAction& one, const eng_exec& exec);
  void fail(Exit exit, const std::string& text);

  const Plan& plan_;
  Device& device_;
  Bound& bound_;
  const bool ranks_;  // there are other ranks
  ActionRecorder* recorder_ = nullptr;
  // The counter to which a wait for another queue is added: that of communication, or that of tiers.
  std::chrono::nanoseconds& waited_for(Queue q) { return waited_[q != Queue::comm && plan_.has_tiers()]; }

 private:
  std::array<std::chrono::nanoseconds, 2> waited_{};  // see Executor::waited
  std::atomic<bool> failed_{false};
  Exit exit_ = Exit::environment;
  std::string failure_;
};

std::unique_ptr<Runner> run_on_threads(const Plan& plan, Device& device, Bound& bound, bool ranks);
std::unique_ptr<Runner> run_on_queues(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs);

}  // namespace eng
