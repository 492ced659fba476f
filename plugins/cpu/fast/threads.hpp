// SPDX-License-Identifier: Apache-2.0
// The number of threads of the cpu device, and how they wait for each other; common/parallel.hpp runs them.
#pragma once

#include "../../common/parallel.hpp"

namespace cpu {

// Returns when another thread has brought the counter to `least`. Looks, then lets others run between looks, then
// sleeps until the counter was set.
void wait_for(const std::atomic<int32_t>& counter, int32_t least);
// Sets a counter that others may wait for.
inline void set_counter(std::atomic<int32_t>& counter, int32_t value) {
  counter.store(value);  // in one order with the waiters' count, which notify_all reads
  counter.notify_all();
}

// Physical cores that this process may run on (its affinity mask, hyper-threads counted once); at least 1.
unsigned physical_cores();

}  // namespace cpu
