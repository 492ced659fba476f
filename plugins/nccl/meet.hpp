// SPDX-License-Identifier: Apache-2.0
// The ranks find each other, without MPI: rank 0 listens on one address, and every other rank connects to it.
#pragma once

#include "engine/comm.h"
#include "wire.hpp"

namespace nccl {

// A rank's message about itself, and rank 0's about all. The bytes are sent as they are.
struct Peer {
  static constexpr uint64_t magic = 0x326c63636e676e65;  // "engnccl2"
  static constexpr uint32_t unknown = UINT32_MAX;
  uint64_t sign = magic;
  uint32_t rank = 0, size = 0, local_rank = unknown, local_size = 1;
  int32_t pid = 0;
  char host[128] = "";    // ends in NUL
  char machine[64] = "";  // changes when the machine starts again; ends in NUL

  std::string text() const { return "process " + std::to_string(pid) + " on " + host; }
};

struct Met {
  std::vector<Peer> peers;  // by rank, their local ranks known
  Wires wires;              // by rank: on rank 0 those of all others, on another one only rank 0's
};

// Throws Error: ENG_UNAVAILABLE if the ranks cannot meet within `deadline` seconds, else for what is wrong about this
// one.
Met meet(const eng_world& announced, const std::string& address, uint16_t port, double deadline);

// "rank 1", "ranks 0, 3"; at most eight are named.
std::string ranks_text(const std::vector<uint32_t>& ranks);

}  // namespace nccl
