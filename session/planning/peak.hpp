// SPDX-License-Identifier: Apache-2.0
// The memory that a rank needs at its peak. The report, the check of what fits, and the metrics use the same sum.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// As reports call them.
const char* to_string(Queue queue);
const char* to_string(Line line);

// The memory that a process holds besides its arenas, in bytes of host memory unless stated otherwise, and where its
// arenas are.
struct Beside {
  uint64_t overhead = 0;         // code, libraries, stacks, the communicator
  uint64_t bookkeeping = 0;      // the plan itself
  uint64_t staging = 0;          // batches
  uint64_t data = 0;             // text that the data source keeps; 0 before the data is opened
  uint64_t tiers = 0;            // what tiers keep beside their arenas
  uint64_t job = 0;              // what a job takes beside its tensors
  uint64_t snapshot = 0;         // the copy of a checkpoint that is written while training continues
  uint64_t copies = 0;           // parts of checkpoints that this rank keeps in memory of hosts: files there
  uint64_t second = 0;           // copies of checkpoints in a second place, on the first rank
  uint64_t device_overhead = 0;  // bytes of the device's own memory: its driver's context, libraries
  bool host_arenas = true;       // the device's own memory is host memory
  uint32_t local_ranks = 1;      // ranks that share the memory of this machine
  // For the plan of texts that observers ask for, arenas included; on the first rank.
  struct {
    uint64_t host = 0, device = 0, storage = 0;
  } sampling;
};

// The bytes of a plan's arenas: in the device's memory, in the host's beside it, on storage.
struct ArenaBytes {
  uint64_t device = 0, host = 0, storage = 0;
};
ArenaBytes arena_bytes(const Plan& plan);

// In bytes.
struct Peak {
  uint64_t host = 0;    // host memory of one rank: its arenas that are there, and what it holds besides arenas
  uint64_t device = 0;  // the device's own memory, including its driver's; a part of `host` if that is host memory
  uint64_t arena = 0;   // of that, the arena
  // The bytes that must fit into the memory that the device reports. If that is host memory, the ranks of a machine
  // share it. Otherwise each rank has its own device.
  uint64_t rank = 0, machine = 0;
  uint64_t hosts = 0;    // host memory of the ranks of a machine together
  uint64_t storage = 0;  // of the ranks of a machine together
};
Peak peak_of(const Plan& plan, const Beside& beside);

// Memory that is there, in bytes; 0: unknown.
struct Available {
  uint64_t device = 0;  // what the device reports
  uint64_t host = 0;    // of a machine, for a device with separate memory
  uint64_t arena = 0;   // for the arena of the device: [device] memory
  uint64_t storage = 0;
};
// By how many bytes too much is needed where that is most; 0: it fits.
struct Excess {
  uint64_t bytes = 0;
  bool host = false;   // of host memory, beside a device with separate memory
  bool arena = false;  // of what [device] memory allows
  bool storage = false;
};
Excess excess(const Peak& peak, const Available& all);

}  // namespace eng
