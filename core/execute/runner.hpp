// SPDX-License-Identifier: Apache-2.0
// How the queues of a plan run: on threads of the host (threads.cpp), or on the queues of a device (streams.cpp).
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "core/execute/bound.hpp"

namespace eng {

constexpr size_t index_of(Queue queue) {
  return static_cast<size_t>(queue);
}

// Told when each action ran; of one queue by one thread at a time, in its order.
class ActionRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  // One action. It could have begun at `reached`, had it not waited for other queues until `begin`.
  struct Event {
    Clock::time_point reached, begin, end;
    uint32_t call, block;  // as in the plan
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

  // Before the first segment of a program.
  void begin() { failed_ = false, waited_ = waited_.zero(); }
  // One repetition of a segment: when it returns, that is done, or on its way.
  virtual void run(size_t program, size_t segment) = 0;
  // Returns when at most one repetition is on its way.
  virtual void settle() {}
  // Returns when all that was begun is done, with the text of an error that came too late for its action to be known.
  virtual std::optional<std::string> finish() = 0;
  // Where an action of a queue is launched outside of a program's run.
  virtual eng_exec where(Queue) const { return {sizeof(eng_exec), ENG_EXEC_SYNC, nullptr}; }
  virtual void record(ActionRecorder* recorder) { recorder_ = recorder; }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Error failure() const { return Error(exit_, failure_); }
  double waited() const { return std::chrono::duration<double>(waited_).count(); }

 protected:
  using Clock = ActionRecorder::Clock;
  // What fails is told by the first to fail; the others go on without launching, so that nobody waits for ever.
  void launch(const Step& step, const eng_exec& exec);
  void fail(Exit exit, const std::string& text);

  const Plan& plan_;
  Device& device_;
  Bound& bound_;
  const bool ranks_;  // there are others
  ActionRecorder* recorder_ = nullptr;
  std::chrono::nanoseconds waited_{0};  // that the compute queue waited for others

 private:
  std::atomic<bool> failed_{false};
  Exit exit_ = Exit::environment;
  std::string failure_;
};

std::unique_ptr<Runner> run_on_threads(const Plan& plan, Device& device, Bound& bound, bool ranks);
std::unique_ptr<Runner> run_on_queues(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs);

}  // namespace eng
