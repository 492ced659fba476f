// SPDX-License-Identifier: Apache-2.0
// Loaded tiers, and what computes in their memory.
#pragma once

#include "core/execute/device.hpp"
#include "core/plan/request.hpp"

namespace eng {

class Tier {
 public:
  Tier(Registry& registry, const Offload::Tier& which, const Section& options, uint32_t local_rank);
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  // Throws Error(Exit::host_memory, or Exit::disk for storage) if the tier refuses.
  void* alloc(uint64_t bytes);
  void free(void* arena, uint64_t bytes) { table_.free(self_, arena, bytes); }
  // Storage only: transfers between host memory and an arena, from byte `offset` on. Both throw Error(Exit::disk) that
  // says that `what` is read or written.
  void read(void* arena, uint64_t offset, void* to, uint64_t bytes, const std::string& what);
  void write(void* arena, uint64_t offset, const void* from, uint64_t bytes, const std::string& what);
  const eng_tier& table() const { return table_; }
  void* self() const { return self_; }

 private:
  const std::string name_;
  const bool storage_;
  eng_tier table_{};
  void* self_ = nullptr;
};

// A copy between storage and memory of the host as a kernel: what a bound action launches.
struct StorageCopy {
  Tier& tier;
  void* arena;
  uint64_t offset;
  void* memory;
  uint64_t bytes;
  bool write;
};
extern const eng_kernel storage_kernel;  // a record is a StorageCopy, which it owns

// The host beside a device.
struct Host {
  std::vector<std::unique_ptr<Tier>> tiers;  // in the order of the plan's arenas
  // The device that computes in the tiers' memory; null: the run's device, whose memory is the host's.
  std::unique_ptr<Device> device;
  const Kernels* kernels = nullptr;
};

}  // namespace eng
