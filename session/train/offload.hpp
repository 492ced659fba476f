// SPDX-License-Identifier: Apache-2.0
// [offload]: which states live on tiers, and the host that holds and updates them.
#pragma once

#include "core/execute/tier.hpp"
#include "core/plan/planner.hpp"
#include "session/config/config.hpp"

namespace eng {

// Throws Error if a tier does not exist or is of a kind that the engine does not support.
Offload make_offload(const Section& section, Registry& registry);

// The kernels that compute in memory of tiers beside a device with memory of its own: those of the cpu with its default
// options.
std::unique_ptr<Kernels> host_kernels(Registry& registry);

// What executes a plan with tiers. `kernels`: host_kernels, or null if the device's own memory is the host's.
Host make_host(const Offload& offload, const Section& section, Registry& registry, const Kernels* kernels,
               uint32_t local_rank);

}  // namespace eng
