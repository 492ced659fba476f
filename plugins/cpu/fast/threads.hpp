// SPDX-License-Identifier: Apache-2.0
// How many threads the cpu device has; common/parallel.hpp runs them.
#pragma once

#include "../../common/parallel.hpp"

namespace cpu {

// Returns when another thread has brought the counter to `least`.
void wait_for(const std::atomic<int64_t>& counter, int64_t least);

// Physical cores that this process may run on (its affinity mask, hyper-threads counted once); at least 1.
unsigned physical_cores();

// While it lives, libraries that ask OpenMP how many threads to plan for are told `threads`.
class ThreadCountGuard {
 public:
  explicit ThreadCountGuard(unsigned threads);
  ~ThreadCountGuard();
  ThreadCountGuard(const ThreadCountGuard&) = delete;
  ThreadCountGuard& operator=(const ThreadCountGuard&) = delete;

 private:
  int before_;
};

}  // namespace cpu
