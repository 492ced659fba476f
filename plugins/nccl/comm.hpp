// SPDX-License-Identifier: Apache-2.0
// The ranks of a run on NCCL: one NCCL communicator for each group, and a channel between the hosts over TCP, in a star
// around rank 0.
//
// A launch only enqueues. Before and after each collective the queue calls a function of the host, which notes where
// the queue is: so a thread of this object sees, also while a captured graph runs, how long a collective has taken. At
// the deadline it asks the other ranks where they are, and ends what NCCL does (ncclCommAbort): the queue goes on, and
// `poll` says why its bytes mean nothing.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../common/comm/place.hpp"
#include "gpu.hpp"

namespace nccl {

using common::Answer;
using common::Clock;
using common::What;

// Throws Error(ENG_UNAVAILABLE): what was called, and what NCCL says.
void check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);
void check(cudaError_t error, const char* doing);

// One communicator of NCCL. Lives as long as any thread may be inside.
struct Library {
  ncclComm_t comm = nullptr;
  std::timed_mutex busy;           // while it is called for a launch
  std::atomic<bool> ended{false};  // aborted: it may not be called
};

struct Group : common::Group {
  std::shared_ptr<Library> library;  // NULL on ranks that are not members
  // What the watching thread has seen.
  uint64_t seen = 0;
  Clock::duration waited{};
};

class Comm;

// Tells where the queue is. Lives as long as what is enqueued with it, captured graphs included.
class Mark {
 public:
  Mark(Comm& comm, Group& group, What what) : comm_(comm), group_(group), what_(what) {}
  void before(cudaStream_t stream);
  void after(cudaStream_t stream);

 private:
  static void enter(void* mark);
  static void leave(void* mark);
  Comm& comm_;
  Group& group_;
  const What what_;
};

class Comm {
 public:
  Comm(const eng_world& announced, const std::string& address, uint16_t port, double deadline, eng_world& out);
  // Leaves together with the others. After a failure it leaves NCCL as it is.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // All ranks call it, before anything else. Throws Error if two of them would have one GPU.
  void take_gpu();
  void make_group(eng_id id, const uint32_t* ranks, uint32_t n);
  // Of which this rank is a member. The first call makes group 1's communicator of NCCL.
  Group& group(eng_id id);
  void exchange_bytes(const void* mine, uint64_t bytes, void* all);
  void poll();
  void abort(const std::string& reason) noexcept;
  // After this, no thread of this object runs.
  void silence();

  // Calls body(comm) to enqueue something of the group.
  void enqueue(Group& group, const std::function<void(ncclComm_t)>& body);
  void enter() const;  // the GPU of this rank becomes that of the thread
  void entered(Group& group, What what);
  void left(Group& group);

 private:
  struct Asked {
    uint32_t group;
    uint32_t number;
    double waited;
    Clock::duration for_answers{};
  };
  struct Exchange {  // on rank 0: what came for one
    std::map<uint32_t, std::string> parts;
  };

  std::vector<std::string> exchange_texts(const std::string& mine);  // all of one length
  void connect(Group& group);                                        // all ranks call it
  void ready() const;                                                // throws if waiting has become pointless
  [[noreturn]] void refuse(std::unique_lock<std::mutex>& lock) const;

  // watch.cpp: the thread. All of it with state_ locked.
  void start_watching();
  void turn(std::unique_lock<std::mutex>& lock);
  void read(Wire& wire, uint32_t rank);
  void take(const Frame& frame, const std::string& bytes);
  void take_part(uint32_t rank, uint32_t number, const std::string& bytes);
  void look_at_time();
  void look_at_library();
  void ask(Group& group);
  void look_at_answers();
  std::string missing(const Group& group);
  void lose(uint32_t rank);
  // With state_ locked: keeps the first reason, and tells the others unless they know.
  void fail(const std::string& reason, bool tell = true);
  void end_library();
  void send(Kind kind, uint32_t to, uint32_t tag, std::string_view bytes);
  void wake() const;

  Met met_;
  std::chrono::duration<double> deadline_;
  int device_ = -1;  // among the visible GPUs
  Group host_;
  std::map<eng_id, Group> groups_;  // changes in [setup] only

  mutable std::mutex state_;
  std::condition_variable changed_;
  std::atomic<bool> failed_{false};
  std::string reason_;
  bool told_ = false, aborted_ = false, leaving_ = false, stop_ = false;
  std::vector<char> gone_;             // by rank: said goodbye, gave up, or was lost
  std::map<uint32_t, Exchange> came_;  // by number of the exchange
  std::optional<std::string> result_;  // of this rank's exchange
  std::optional<Asked> asked_;
  std::vector<Answer> answers_;  // by rank
  uint32_t questions_ = 0;
  Clock::time_point looked_{};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace nccl
