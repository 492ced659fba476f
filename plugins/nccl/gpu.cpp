// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../common/cuda/visible.hpp"

namespace nccl {
namespace {

// As nvidia-smi -L writes it: "GPU-12345678-1234-1234-1234-123456789abc".
std::string uuid_text(const cudaUUID_t& id) {
  std::string out = "GPU";
  for (size_t k = 0; k < sizeof id.bytes; ++k) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(id.bytes[k]));
    out += (k == 0 || k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "") + std::string(two);
  }
  return out;
}

}  // namespace

Gpu gpu_of(uint32_t local_rank) {
  Gpu out;
  cudaDeviceProp properties{};
  if (cudaGetDeviceCount(&out.visible) != cudaSuccess || out.visible < 1) return cudaGetLastError(), Gpu{};
  out.number = cuda::gpu_of_rank(local_rank, out.visible);
  if (out.number < 0) return out;  // check_gpus names this rank
  if (cudaGetDeviceProperties(&properties, out.number) != cudaSuccess ||
      cudaDeviceGetPCIBusId(out.bus, sizeof out.bus - 1, out.number) != cudaSuccess)
    return cudaGetLastError(), Gpu{};
  out.id = properties.uuid;
  std::memcpy(out.name, properties.name, std::min(std::strlen(properties.name), sizeof out.name - 1));
  return out;
}

void check_gpus(const std::vector<Peer>& peers, const std::vector<Gpu>& gpus, int sharing) {
  constexpr int shares = 23000;  // NCCL 2.30
  for (size_t r = 0; r < gpus.size(); ++r)
    if (gpus[r].visible && gpus[r].number < 0)
      throw Error{ENG_UNSUPPORTED, "rank " + std::to_string(r) + " on " + peers[r].host + ": " +
                                       cuda::too_few_gpus(peers[r].local_rank, gpus[r].visible)};
  for (size_t r = 0; r < gpus.size(); ++r) {
    const Gpu& gpu = gpus[r];
    std::vector<uint32_t> users;
    for (uint32_t other = 0; other < gpus.size(); ++other)
      if (gpu.number >= 0 && gpus[other].number >= 0 && std::memcmp(&gpus[other].id, &gpu.id, sizeof gpu.id) == 0)
        users.push_back(other);
    if (users.size() < 2 || sharing >= shares) continue;
    const std::string change =
        "): each rank needs one of its own. Start fewer ranks on this machine, or let each rank "
        "see its own GPU (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)";
    const std::string old = "): [comm] share_gpus needs NCCL 2.30, and this is " + std::to_string(sharing / 10000) +
                            "." + std::to_string(sharing / 100 % 100);
    throw Error{ENG_UNSUPPORTED, ranks_text(users) + " on " + peers[r].host + " have the same GPU (" + gpu.name + ", " +
                                     uuid_text(gpu.id) + ", PCI " + gpu.bus + (sharing ? old : change)};
  }
}

}  // namespace nccl
