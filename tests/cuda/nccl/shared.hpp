// SPDX-License-Identifier: Apache-2.0
// The memory that the processes of one communicator of the software NCCL share: a file in /dev/shm, gone when all have
// it mapped.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace softnccl {

constexpr int most_ranks = 16;
constexpr size_t chunk = 65536;  // bytes that a message moves at once

enum class Kind : uint32_t { all_gather, broadcast, all_reduce, reduce_scatter, messages };

// The collective that a rank has entered. Two, by turns: nobody is two ahead.
struct Entered {
  std::atomic<uint64_t> number{0};
  Kind kind;
  uint32_t type, root;
  uint64_t count;
};
// From one rank to another.
struct Mailbox {
  std::atomic<uint32_t> full{0};
  uint32_t bytes;
  uint64_t total;  // of the message that this is a part of
  char data[chunk];
};
struct Shared {
  std::atomic<uint32_t> joined{0};
  std::atomic<uint32_t> wrong{0};  // 1: text is being written, 2: written
  char text[400];
  std::atomic<uint32_t> taken[most_ranks];
  char gpu[most_ranks][32];  // the PCI address
  Entered entered[most_ranks][2];
  Mailbox boxes[];  // [from * size + to]
};

// Waits without a limit of NCCL's own; a test that nobody ends is ended by this one.
class Patience {
 public:
  void moved() { tries_ = 0; }
  // False after SOFTNCCL_SECONDS (120).
  bool wait();

 private:
  uint64_t tries_ = 0;
  std::chrono::steady_clock::time_point since_{};
};

struct Soft {
  Shared* shared = nullptr;
  size_t bytes = 0;
  int rank = 0, size = 0, device = 0;
  uint64_t number = 0;  // of the collective that the queue is in
  std::atomic<bool> ended{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::mutex mutex;
  std::string text;                           // of `error`
  std::vector<std::shared_ptr<void>> graphs;  // jobs of captured launches
  ~Soft();

  // All processes see it.
  void complain(const std::string& what);
  void fail(ncclResult_t with, const std::string& what);  // this one
  // True if what is being done should go on.
  bool goes_on();
  Mailbox& box(int from, int to) const { return shared->boxes[from * size + to]; }
};

int version();
// Opens what `id` names, and waits until all are there.
ncclResult_t join(Soft& soft, const ncclUniqueId& id);
ncclUniqueId new_id();

// One message, or this rank's side of it.
struct Message {
  bool send;
  int peer;
  char* data;
  uint64_t bytes;
  uint64_t at = 0;
  bool begun = false;  // an empty one is a message, too
};
// The work of one launch.
struct Job {
  std::shared_ptr<Soft> soft;
  Kind kind = Kind::messages;
  ncclDataType_t type = ncclUint8;
  int root = 0;
  uint64_t count = 0;
  const char* in = nullptr;
  char* out = nullptr;
  std::vector<Message> messages;  // of Kind::messages
  void run();

 private:
  bool enter();
  void move(std::vector<Message> list);
  void reduce(uint64_t bytes, uint64_t first, bool parts);
};

uint64_t size_of(ncclDataType_t type);

}  // namespace softnccl
