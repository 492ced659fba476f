// SPDX-License-Identifier: Apache-2.0
// How many threads the cpu device has, and how they wait for each other; common/parallel.hpp runs them.
#pragma once

#include "../../common/parallel.hpp"

namespace cpu {

// Returns when another thread has brought the counter to `least`.
void wait_for(const std::atomic<int64_t>& counter, int64_t least);

// Physical cores that this process may run on (its affinity mask, hyper-threads counted once); at least 1.
unsigned physical_cores();

}  // namespace cpu
