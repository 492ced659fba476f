// SPDX-License-Identifier: Apache-2.0
// The memory that a rank needs at its peak: one sum for the report, for what fits, and for the metrics.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// What a process holds beside its arenas, in bytes of host memory if not said otherwise, and where its arenas are.
struct Beside {
  uint64_t overhead = 0;         // code, libraries, stacks, the communicator
  uint64_t staging = 0;          // batches
  uint64_t snapshot = 0;         // checkpoints that are written while steps go on
  uint64_t device_overhead = 0;  // of the device's own memory: its driver's context, libraries
  bool host_arenas = true;       // the device's own memory is host memory
  uint32_t local_ranks = 1;      // that share the memory of this machine
};

// Bytes.
struct Peak {
  uint64_t host = 0;    // host memory of one rank: what is beside its arenas, and those arenas that are there
  uint64_t device = 0;  // the device's own memory, with what its driver holds; if that is host memory, a part of `host`
  // What has to fit into the memory that the device reports: the ranks of a machine share it if it is host memory, and
  // each has a device of its own if not.
  uint64_t rank = 0, machine = 0;
};
Peak peak_of(const Plan& plan, const Beside& beside);

}  // namespace eng
