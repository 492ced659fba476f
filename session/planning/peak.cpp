// SPDX-License-Identifier: Apache-2.0
#include "session/planning/peak.hpp"

#include <algorithm>

namespace eng {

const char* to_string(Queue queue) {
  static const char* names[] = {"compute", "comm", "h2d", "d2h", "read", "write", "host"};
  return names[static_cast<size_t>(queue)];
}

const char* to_string(Line line) {
  static const char* names[] = {"weights",       "reference", "gradients",   "residuals", "optimizer", "constants",
                                "batch",         "step",      "activations", "workspace", "caches",    "leases",
                                "communication", "update",    "undo",        "observers", "job",       "sites"};
  return names[static_cast<size_t>(line)];
}

ArenaBytes arena_bytes(const Plan& plan) {
  ArenaBytes out;
  for (const Arena& arena : plan.arenas)
    (arena.kind == "storage" ? out.storage : arena.kind == "device" ? out.device : out.host) += arena.total();
  return out;
}

Peak peak_of(const Plan& plan, const Beside& beside) {
  const ArenaBytes arenas = arena_bytes(plan);
  Peak peak;
  peak.arena = arenas.device + beside.sampling.device;
  peak.device = beside.device_overhead + peak.arena;
  peak.host = beside.overhead + beside.bookkeeping + beside.staging + beside.data + beside.tiers + beside.job +
              beside.snapshot + beside.copies + beside.second + arenas.host + beside.sampling.host;
  if (beside.host_arenas) peak.host += peak.arena;
  peak.storage = arenas.storage * beside.local_ranks + beside.sampling.storage;
  peak.rank = beside.host_arenas ? peak.host : peak.device;
  peak.machine = peak.rank * (beside.host_arenas ? beside.local_ranks : 1);
  peak.hosts = peak.host * beside.local_ranks;
  return peak;
}

Excess excess(const Peak& peak, const Available& all) {
  const auto above = [](uint64_t need, uint64_t total) { return total && need > total ? need - total : 0; };
  const uint64_t device = above(peak.machine, all.device), host = above(peak.hosts, all.host);
  const uint64_t arena = above(peak.arena, all.arena), storage = above(peak.storage, all.storage);
  if (storage > std::max({host, device, arena})) return {storage, false, false, true};
  if (arena > std::max(host, device)) return {arena, false, true};
  return host > device ? Excess{host, true} : Excess{device, false};
}

}  // namespace eng
