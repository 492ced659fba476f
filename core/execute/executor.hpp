// SPDX-License-Identifier: Apache-2.0
// Runs the programs of a plan in its arenas. Only the constructor allocates.
#pragma once

#include "core/execute/runner.hpp"

namespace eng {

class Executor {
 public:
  // Prepares every call, allocates the arenas, binds every action, uploads the constants. `comm` runs the collectives
  // and must have made the plan's groups. `graphs`: use launch graphs if the device has them. `host`: for a plan with
  // tiers. Collectives are prepared last, by all ranks together, as a communicator may then connect them;
  // `collectives_next` is called before.
  Executor(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm = nullptr, bool graphs = true,
           Host* host = nullptr, const std::function<void()>& collectives_next = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs a program to its end. Throws Error naming the action that failed, with Exit::communication if waiting for
  // other ranks failed. Calls `stop` before each repetition except the first one and those of the last segment; if it
  // returns true, returns false: the step does not count, and persistent state except counters and losses is that
  // before the step, after what Plan::left says.
  bool run(const std::string& program, bool (*stop)() = nullptr);
  // Seconds in the last run that the compute queue waited for others; for a device with queues, the seconds in which
  // the host waited or worked between islands of enqueued actions. `tiers`: for what comes from tiers, goes there or is
  // computed there; otherwise for communication.
  double waited(bool tiers) const { return runner_->waited(tiers); }
  // Sets the recorder of later runs; nullptr: none. Owner: caller.
  void record(ActionRecorder* recorder) { runner_->record(recorder); }
  // Runs a program again, action by action, and names the first output with a NaN or an infinity:
  // "eng.attention/1 in layers.3 forward, output 0 f32 (8, 256, 64)"; "" if there is none. All ranks must call it.
  std::string locate(const std::string& program);
  // Between programs only.
  void upload(const View& to, const void* from) { upload(to, 0, from, bytes(to.desc)); }
  void download(void* to, const View& from) { download(to, from, 0, bytes(from.desc)); }
  void upload(const View& to, uint64_t byte, const void* from, uint64_t n);
  void download(void* to, const View& from, uint64_t byte, uint64_t n);
  // The bytes of a view in host memory, which the host reads and writes between programs: a program copies them in and
  // out. Throws Error(Exit::bug) for a view that is not.
  template <class T>
  T* host(const View& view) const {
    return reinterpret_cast<T*>(host_bytes(view));
  }
  // The address of a view.
  uint8_t* address(const View& view) const { return bound_.address(view); }
  // The memory of the arenas, which lasts while anybody holds it. The device and the host must live as long.
  const std::shared_ptr<const Arenas>& arenas() const { return bound_.arenas; }
  // The bytes after the persistent ones of arena 0: free between programs.
  void* transient() const { return static_cast<uint8_t*>((*bound_.arenas)[0]) + plan_.arenas[0].persistent; }

 private:
  uint8_t* host_bytes(const View& view) const;
  // Launches every action in list order, repetitions included, and calls visit(step) when it has ended; stops when that
  // returns true. Throws Error for an action that fails.
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
