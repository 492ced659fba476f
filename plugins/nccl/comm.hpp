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

#include <condition_variable>
#include <functional>
#include <thread>

#include "../common/comm/failure.hpp"
#include "../common/comm/groups.hpp"
#include "gpu.hpp"

namespace nccl {

using common::Answer;
using common::Clock;
using common::What;

// "unhandled system error (what NCCL adds)"
std::string text_of(ncclResult_t result, ncclComm_t comm);
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
  // Progress that the watching thread has seen.
  uint64_t seen = 0;
  Clock::duration waited{};
};

class Comm {
 public:
  Comm(const eng_world& announced, const std::string& address, uint16_t port, double deadline, eng_world& out);
  // Leaves together with the others. After a failure it leaves NCCL as it is.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // All ranks call it, before anything else. Throws Error if two of them would have one GPU and may not `share` it.
  void take_gpu(bool share);
  void make_group(eng_id id, const uint32_t* ranks, uint32_t n);
  // The group, of which this rank is a member. The first call makes group 1's communicator of NCCL.
  Group& group(eng_id id);
  void exchange_bytes(const void* mine, uint64_t bytes, void* all);
  void poll();
  void abort(const std::string& reason) noexcept;
  // After this, no thread of this object runs.
  void silence();

  // Calls body(comm) to enqueue something of the group.
  void enqueue(Group& group, const std::function<void(ncclComm_t)>& body);
  // The queue has come to a collective of the group, or has left it.
  void entered(Group& group, What what);
  void left(Group& group);

 private:
  struct Asked {
    const Group* group;
    double waited;
    Clock::duration for_answers{};
  };

  template <class T>
  std::vector<T> exchange_values(const T& mine) {
    std::vector<T> all(groups_.size);
    exchange_bytes(&mine, sizeof mine, all.data());
    return all;
  }
  void connect(Group& group);  // all ranks call it

  // watch.cpp: the thread. All of it with state_ locked.
  void start_watching();
  void turn(std::unique_lock<std::mutex>& lock);
  void read(uint32_t rank);
  void take(const Frame& frame, const std::string& bytes);
  void take_part(uint32_t rank, std::string_view bytes);
  void look_at_time();
  void look_at_library();
  void look_at_answers();
  // The first one counts: it ends what NCCL does, and the others are told unless they know, as `tell`: gone or lost.
  void fail(const std::string& reason, Kind tell = Kind::gone);
  void end_library();
  void send(Kind kind, uint32_t to, uint32_t tag, std::string_view bytes);
  void pass(const Frame& frame, std::string_view bytes);  // to whom it is for, or to rank 0
  void wake() const;

  Met met_;
  std::chrono::duration<double> deadline_;
  int device_ = -1;  // among the visible GPUs
  common::Groups<Group> groups_;

  std::mutex state_;
  std::condition_variable changed_;
  common::Failure failed_;
  bool known_ = false;    // to the other ranks, or soon: why this one failed
  bool leaving_ = false;  // a rank said goodbye: all have met for the last time, and one that ends is not lost
  std::optional<Clock::time_point> stop_by_;  // the thread stops when all is sent, or then
  std::map<uint32_t, std::string> parts_;     // on rank 0, by rank: what came for an exchange
  std::optional<std::string> result_;         // of this rank's exchange
  std::optional<Asked> asked_;
  Clock::time_point looked_{};
  int wake_ = -1;
  std::thread thread_;
};

}  // namespace nccl
