// SPDX-License-Identifier: Apache-2.0
// Starts MPI without side effects on the process.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../common/call.hpp"
#include "engine/comm.h"

namespace mpi {

using common::Error;

// The text of an MPI error code.
std::string text_of(int code);
// Throws Error{ENG_UNAVAILABLE, "MPI_Xyz: ..."}.
void check(int code, const char* call);

// Another rank of this machine; the operating system reports when it ends.
struct Neighbour {
  uint32_t rank = 0;
  int pid = 0;
  int fd = -1;  // readable once it has ended
};

// Communicators that the ranks share from the start. Traffic on one never meets traffic on another.
struct Joined {
  MPI_Comm step = MPI_COMM_NULL;     // collectives of a step
  MPI_Comm host = MPI_COMM_NULL;     // exchange
  MPI_Comm control = MPI_COMM_NULL;  // notes about who waits for what
  uint32_t rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::vector<Neighbour> neighbours;  // those that can be seen
};

// Starts MPI, once in a process. When it returns, signal handlers are as they were.
Joined join(double deadline);

}  // namespace mpi
