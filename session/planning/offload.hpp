// SPDX-License-Identifier: Apache-2.0
// [offload]: which states live on tiers, and the host that holds and updates them.
#pragma once

#include <set>

#include "core/execute/tier.hpp"
#include "core/plan/request.hpp"
#include "session/config/config.hpp"

namespace eng {

// A tier's own description. Throws Error(Exit::environment) if that cannot be.
eng_tier_info describe_tier(Registry& registry, const std::string& name, const Section& options);
// The host memory that a process needs beside an arena of `bytes`.
uint64_t tier_host_bytes(Registry& registry, const std::string& name, const Section& options, uint64_t bytes);

// The properties of a tier that is storage.
struct Storage {
  std::string tier;
  uint64_t total = 0;          // bytes for the ranks of a machine together; 0: unknown
  double read = 0, write = 0;  // bytes/s of these; 0: unknown
};
// Refuses offload.update_late beside observers, and with a limit of the bytes of leases.
void check_late(const Offload& offload, bool observed, bool limited);
// Refuses offload.update_early likewise.
void check_early(bool observed, bool limited);

// The first of the last blocks with this part of the parameters that are trained, to within half a block, if no more
// than `most` of these are in them.
uint32_t early_block(const Model& model, double share, double most);
// The part of these that is in blocks [first, end).
double early_part(const Model& model, uint32_t first);

// True if a step's early updates, which assumed the first scalars, are to be made again with the second, those of the
// step: ENG_S_COUNT values each.
bool assumed_wrongly(const float* assumed, const float* scalars);

Storage storage_of(const Offload& offload, const Section& section, Registry& registry);

// The host memory that the tiers of a plan need beside their arenas.
uint64_t tiers_beside(const Plan& plan, const Section& section, Registry& registry);

// `discrete`: the device's memory is not the host's. `idle`: roles that the plan does not have. Throws Error if a tier
// does not exist or describes itself wrongly.
Offload make_offload(const Section& section, Registry& registry, bool discrete, const std::set<int32_t>& idle = {});

// The kernels that compute in memory of tiers beside a device with memory of its own: those of the cpu with [host]
// threads, and else its default options.
std::unique_ptr<Kernels> host_kernels(Registry& registry, const Section& host);

// The way in which updates on the host run.
struct HostUpdate {
  uint32_t threads = 0, of = 0;  // of each rank: those of the update, those of what the host computes; 0: unknown
  bool overlapped = false;       // the device computes meanwhile
  double device_share = 0;       // the part of what is on tiers that the device updates at the same time
  bool late = false;             // beside the next step's first forward
  double early = 0;              // the part of the parameters whose update begins beside the last backward
  uint64_t undo = 0;             // bytes that this needs to be undone
};
// The host updates of a plan; absent if it has none. `kernels`: those that the host computes with, or null if nobody
// was asked.
std::optional<HostUpdate> host_update(const Plan& plan, const Kernels* kernels);

// Refuses an update on the host of a device with other kernels, if one of these does not promise the same bits
// everywhere: the result would depend on where it runs. Throws Error that names the op.
void check_same_bits(const Plan& plan, const Kernels& host, const std::string& optimizer, const std::string& device);

// The host's part of executing a plan with tiers. `kernels`: host_kernels, or null if the device's own memory is the
// host's.
Host make_host(const Offload& offload, const Section& section, Registry& registry, const Kernels* kernels,
               uint32_t local_rank);

// Asks the storage of a plan for its arenas, and gives them back. Throws Error that names the limit: a folder, its file
// system, free space, the size of a file.
void try_storage(const Plan& plan, const Offload& offload, const Section& section, Registry& registry);

}  // namespace eng
