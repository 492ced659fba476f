// SPDX-License-Identifier: Apache-2.0
// A lock that threads get in the order in which they asked for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace mpi {

// A thread that waits for a message takes the lock, looks, and takes it again at once. A plain mutex goes to a thread
// that is running. On a busy machine it would stay with that thread, while the one that would send the answer waits for
// the lock. Two ranks that do so would wait for each other for ever.
class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t mine = next_++;
    turn_.wait(lock, [&] { return now_ == mine; });
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      ++now_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ = 0, now_ = 0;
};

}  // namespace mpi
