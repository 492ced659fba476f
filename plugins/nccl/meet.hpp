// SPDX-License-Identifier: Apache-2.0
// The ranks find each other, without MPI: rank 0 listens on one address, and every other rank connects to it.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm.h"
#include "wire.hpp"

namespace nccl {

struct Peer {
  std::string host;
  int32_t pid = 0;
  uint32_t local_rank = 0, local_size = 1;
};

struct Met {
  uint32_t rank = 0, size = 1;
  std::vector<Peer> peers;                   // by rank
  std::vector<std::unique_ptr<Wire>> wires;  // on rank 0 by rank, its own is NULL; on another one: to rank 0
};

// Throws Error: ENG_UNAVAILABLE if the ranks cannot meet within `deadline` seconds, else for what is wrong about this
// one.
Met meet(const eng_world& announced, const std::string& address, uint16_t port, double deadline);

// "rank 1", "ranks 0, 3"; at most eight are named.
std::string ranks_text(const std::vector<uint32_t>& ranks);

}  // namespace nccl
