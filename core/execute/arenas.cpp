// SPDX-License-Identifier: Apache-2.0
#include "core/execute/arenas.hpp"

namespace eng {

Arenas::Arenas(const Plan& plan, Device& device, Host* host) : Arenas(device) {
  if (plan.has_tiers() && !host) throw Error(Exit::bug, "this plan has tiers, but no tier was created");
  for (uint32_t a = 0; a < plan.arenas.size(); ++a) {
    const std::string& kind = plan.arenas[a].kind;
    Held one;
    one.tier = a < plan.first_tier ? nullptr : host->tiers[a - plan.first_tier].get();
    one.memory = kind == "device" ? ENG_MEMORY_DEVICE : kind == "pinned" ? ENG_MEMORY_PINNED : ENG_MEMORY_HOST;
    one.bytes = plan.arenas[a].total();
    one.base = one.tier ? one.tier->alloc(one.bytes) : device.alloc(one.memory, one.bytes);
    all_.push_back(one);
    // Lets the device copy from and to a tier.
    if (!one.tier || plan.stores(a) || !device.table().pin) continue;
    device.call("pin", device.table().pin, one.base, one.bytes);
    all_.back().pinned = true;
  }
}

Arenas::~Arenas() {
  for (const Held& one : all_)
    if (one.pinned) device_.table().unpin(device_.self(), one.base, one.bytes);
  for (const Held& one : all_)
    if (one.tier)
      one.tier->free(one.base, one.bytes);
    else
      device_.free(one.memory, one.base, one.bytes);
}

}  // namespace eng
