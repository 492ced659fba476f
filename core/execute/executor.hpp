// SPDX-License-Identifier: Apache-2.0
// Runs the programs of a plan out of its arenas. Everything that allocates happens in the constructor.
#pragma once

#include "core/execute/runner.hpp"

namespace eng {

class Executor {
 public:
  using Recorder = ActionRecorder;

  // Allocates the arenas, prepares every call, binds every action, uploads the constants. Collectives are those of
  // `comm`, which has the plan's groups. `graphs`: launch graphs, where the device has them.
  Executor(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm = nullptr, bool graphs = true);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs a program to its end. Throws Error naming the action that failed: with Exit::communication where other ranks
  // were waited for in vain. If `stop` answers true before the program's last segment, returns false there: nothing of
  // the step counts, persistent state other than counters and losses is as before.
  bool run(const std::string& program, bool (*stop)() = nullptr);
  // Seconds of the last run that the compute queue waited for others; of a device with queues, what the host waited and
  // worked between them.
  double waited() const { return runner_->waited(); }
  // Who is told of runs from now on; nullptr: nobody. Owner: caller.
  void record(Recorder* recorder) { runner_->record(recorder); }
  // Runs a program again, action by action, and names the first output that holds a NaN or an infinity:
  // "eng.attention/1 in layers.3 forward, output 0 f32 (8, 256, 64)". Empty if there is none. All ranks call it.
  std::string locate(const std::string& program);
  // Between programs only.
  void upload(const View& to, const void* from) { upload(to, 0, from, bytes(to.desc)); }
  void download(void* to, const View& from) { download(to, from, 0, bytes(from.desc)); }
  void upload(const View& to, uint64_t byte, const void* from, uint64_t n);
  void download(void* to, const View& from, uint64_t byte, uint64_t n);
  // The bytes of a view that the host may read and write in place, between programs: what a program copies in and out.
  template <class T>
  T* host(const View& view) const {
    return reinterpret_cast<T*>(host_bytes(view));
  }
  // Where a view lies, on the device.
  uint8_t* address(const View& view) const { return bound_.address(view); }
  // The bytes behind the persistent ones of arena 0: free between programs.
  void* transient() const { return static_cast<uint8_t*>(bound_.arenas[0]) + plan_.arenas[0].persistent; }

 private:
  uint8_t* host_bytes(const View& view) const;
  // Calls visit(step) for every action in list order, repetitions too, after it has been launched and has ended; true
  // ends it. Throws what an action fails with.
  template <class Visit>
  void each(const std::string& program, bool collectives, Visit visit);
  Error late(const std::string& program, const std::string& text);

  const Plan& plan_;
  Device& device_;
  Communicator* comm_;
  Bound bound_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace eng
