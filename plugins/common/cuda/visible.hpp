// SPDX-License-Identifier: Apache-2.0
// Which of the GPUs that a rank sees it takes: one rule for the device and for communicators.
#pragma once

#include <cstdint>
#include <string>

#include "../error.hpp"

namespace cuda {

// The number of the rank's GPU, from 0, among the `visible` ones (at least 1). Launchers that give each rank a GPU of
// its own (Slurm with --gpus-per-task, Kubernetes) let it see only that one. Otherwise all ranks of a machine see the
// same GPUs, and local rank k takes GPU k. Throws Error(ENG_UNAVAILABLE) if there are too few.
inline int gpu_of_rank(uint32_t local_rank, int visible) {
  if (visible == 1) return 0;
  if (local_rank < static_cast<uint32_t>(visible)) return static_cast<int>(local_rank);
  const std::string number = std::to_string(local_rank);
  throw common::Error{ENG_UNAVAILABLE, "local rank " + number + " needs GPU number " + number + " (from 0), but " +
                                           std::to_string(visible) +
                                           " are visible: start fewer ranks on this machine, or let "
                                           "CUDA_VISIBLE_DEVICES list one GPU for each, or only its own to each rank"};
}

}  // namespace cuda
