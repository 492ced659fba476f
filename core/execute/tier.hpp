// SPDX-License-Identifier: Apache-2.0
// Loaded tiers, and what computes in their memory.
#pragma once

#include "core/execute/device.hpp"

namespace eng {

// Throws Error(Exit::usage) if the tier is of a kind that this engine cannot use.
eng_tier_info describe_tier(Registry& registry, const std::string& name, const Section& options);

class Tier {
 public:
  Tier(Registry& registry, const std::string& name, const Section& options, uint32_t local_rank);
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  // Throws Error(Exit::host_memory) if the tier refuses.
  void* alloc(uint64_t bytes);
  void free(void* arena, uint64_t bytes) { table_.free(self_, arena, bytes); }

 private:
  std::string name_;
  eng_tier table_{};
  void* self_ = nullptr;
};

// The host beside a device.
struct Host {
  std::vector<std::unique_ptr<Tier>> tiers;  // in the order of the plan's arenas
  // What computes in the tiers' memory; null: the device, whose memory is the host's.
  std::unique_ptr<Device> device;
  const Kernels* kernels = nullptr;
};

}  // namespace eng
