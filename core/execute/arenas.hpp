// SPDX-License-Identifier: Apache-2.0
// The memory of a plan: one allocation for each arena. It may outlive the plan, the executor and the registry.
#pragma once

#include "core/execute/tier.hpp"

namespace eng {

class Arenas {
 public:
  // Allocates all of them; those of tiers, which `host` has, are made reachable for the device. `device` and `host`
  // must live longer. Throws Error if a device or tier refuses.
  Arenas(const Plan& plan, Device& device, Host* host);
  ~Arenas();
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;
  void* operator[](uint32_t arena) const { return all_[arena].base; }
  // The tier that allocated the arena; null: the device's plugin did.
  Tier* tier(uint32_t arena) const { return all_[arena].tier; }
  int32_t memory(uint32_t arena) const { return all_[arena].memory; }  // ENG_MEMORY_*

 private:
  struct Held {
    Tier* tier = nullptr;
    int32_t memory = ENG_MEMORY_DEVICE;
    uint64_t bytes = 0;
    void* base = nullptr;
    bool pinned = false;
  };
  // Once this has ended, the destructor runs also if the other constructor throws.
  explicit Arenas(Device& device) : device_(device) {}
  Device& device_;
  std::vector<Held> all_;  // same indices as in the plan
};

}  // namespace eng
