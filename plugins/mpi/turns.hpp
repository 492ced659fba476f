// SPDX-License-Identifier: Apache-2.0
// A lock that is given to those who wait for it in the order in which they came.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace mpi {

// A thread that waits for a message takes the lock, looks, and takes it again at once. A plain mutex goes to whoever
// runs, so on a busy machine it stays with that thread, while the one that would send the answer waits for the lock:
// two ranks that do so wait for each other for ever.
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
