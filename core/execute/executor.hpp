// SPDX-License-Identifier: Apache-2.0
// Runs the programs of a plan out of its arenas. Everything that allocates happens in the constructor.
#pragma once

#include <array>
#include <atomic>
#include <chrono>

#include "core/execute/comm.hpp"
#include "core/execute/device.hpp"

namespace eng {

class Executor {
 public:
  // Told when each action ran, on the thread of its queue.
  class Recorder {
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
    ~Recorder() = default;
  };

  // Allocates the arenas, prepares every call, binds every action, uploads the constants. Collectives are those of
  // `comm`, which has the plan's groups.
  Executor(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs a program to its end; the compute queue is the caller's thread. Throws Error naming the action that failed:
  // with Exit::communication where other ranks were waited for in vain. If `stop` answers true before the program's
  // last segment, returns false there: nothing of the step counts, persistent state other than counters and losses is
  // as before.
  bool run(const std::string& program, bool (*stop)() = nullptr);
  // Seconds of the last run that the compute queue waited for others.
  double waited() const { return std::chrono::duration<double>(waited_).count(); }
  // Who is told of runs from now on; nullptr: nobody. Owner: caller.
  void record(Recorder* recorder) { recorder_ = recorder; }
  // Runs a program again, action by action, and names the first output that holds a NaN or an infinity:
  // "eng.attention/1 in layers.3 forward, output 0 f32 (8, 256, 64)". Empty if there is none. All ranks call it.
  std::string locate(const std::string& program);
  // Between programs only.
  void upload(const View& to, const void* from) { upload(to, 0, from, bytes(to.desc)); }
  void download(void* to, const View& from) { download(to, from, 0, bytes(from.desc)); }
  void upload(const View& to, uint64_t byte, const void* from, uint64_t n) {
    device_.upload(address(to) + byte, from, n);
  }
  void download(void* to, const View& from, uint64_t byte, uint64_t n) {
    device_.download(to, address(from) + byte, n);
  }
  // Where a view lies, on the device.
  uint8_t* address(const View& view) const;
  // The bytes behind the persistent ones of arena 0: free between programs.
  void* transient() const { return static_cast<uint8_t*>(arenas_[0]) + plan_.arenas[0].persistent; }

 private:
  struct Step;
  struct Lane;
  struct Bound;
  struct Worker;
  struct Prepared {
    const eng_kernel* kernel = nullptr;
    void* state = nullptr;
  };
  void release();
  void prepare(const Call& call, const Kernels& kernels);
  void bind(Bound& bound, const Segment& segment, const Kernels& kernels);
  void* bind(const Action& action, const Kernels& kernels);
  std::vector<std::unique_ptr<Bound>>& segments(const std::string& program);
  void run(Bound& segment, Queue queue);
  void run(Bound& segment);
  void launch(const Step& step);

  const Plan& plan_;
  Device& device_;
  Communicator* comm_;
  std::vector<void*> arenas_;
  std::vector<Prepared> calls_;                                // as in the plan
  std::vector<std::vector<std::unique_ptr<Bound>>> programs_;  // as in the plan, by segment
  std::array<std::unique_ptr<Worker>, queue_count> workers_;   // of the queues in use, but compute
  std::atomic<bool> failed_{false};
  Exit exit_ = Exit::environment;
  std::string failure_;
  std::chrono::nanoseconds waited_{0};
  Recorder* recorder_ = nullptr;
};

}  // namespace eng
