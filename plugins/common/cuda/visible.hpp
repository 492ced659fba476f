// SPDX-License-Identifier: Apache-2.0
// Chooses a rank's GPU among those that it sees: one rule for the device and for communicators.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace cuda {

// The number of the rank's GPU, from 0, among the `visible` ones (at least 1); -1 if there are too few. All ranks of a
// machine see the same GPUs, and local rank k takes GPU k; or a launcher gives each rank a CUDA_VISIBLE_DEVICES with a
// GPU of its own, as Slurm does with --gpus-per-task. Without that variable, a machine with one GPU is for one rank.
inline int gpu_of_rank(uint32_t local_rank, int visible) {
  const char* const listed = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == 1 && listed && *listed) return 0;
  return local_rank < static_cast<uint32_t>(visible) ? static_cast<int>(local_rank) : -1;
}

inline std::string too_few_gpus(uint32_t local_rank, int visible) {
  const std::string number = std::to_string(local_rank);
  return "local rank " + number + " needs GPU number " + number + " (from 0), but " + std::to_string(visible) +
         (visible == 1 ? " is" : " are") +
         " visible: start fewer ranks on this machine, or let CUDA_VISIBLE_DEVICES list one GPU for each, or only its "
         "own to each rank";
}

}  // namespace cuda
