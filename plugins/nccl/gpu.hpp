// SPDX-License-Identifier: Apache-2.0
// The GPU of each rank: no two ranks may have the same one, unless NCCL is asked to try it.
#pragma once

#include <cuda_runtime_api.h>

#include "meet.hpp"

namespace nccl {

// A rank's message to the others about its GPU. The bytes are sent as they are.
struct Gpu {
  int32_t visible = 0;  // GPUs that the rank sees; 0: none, or CUDA does not start. Then its device says why
  int32_t number = -1;  // of its own among them; -1: there are too few
  cudaUUID_t id{};
  char name[64] = "";  // ends in NUL
  char bus[32] = "";   // the PCI address, "0000:01:00.0"; ends in NUL
};

// Makes no context.
Gpu gpu_of(uint32_t local_rank);

// Throws Error(ENG_UNSUPPORTED) if a rank sees too few GPUs, or if ranks share one: which ranks, which GPU, and what to
// change. Both are by rank; all ranks come to the same result. sharing: the version of NCCL if ranks may share, else 0.
void check_gpus(const std::vector<Peer>& peers, const std::vector<Gpu>& gpus, int sharing);

}  // namespace nccl
