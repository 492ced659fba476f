// SPDX-License-Identifier: Apache-2.0
#include "session/planning/offload.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "engine/ops.h"
#include "session/model/pipeline.hpp"
#include "session/plugins/listing.hpp"
#include "session/plugins/usual.hpp"

namespace eng {
namespace {

// The device whose kernels compute in memory of tiers, whatever the device of the run is.
std::string host_device(const Registry& registry) {
  return usual(registry, ENG_DEVICE_KIND, "whose kernels compute in memory of tiers");
}

void add(Offload& offload, const std::string& tier, const Section& section, Registry& registry) {
  for (const Offload::Tier& one : offload.tiers)
    if (one.name == tier) return;
  offload.tiers.push_back({tier, !(describe_tier(registry, tier, section).flags & ENG_TIER_HOST_MEMORY)});
}

// Visits each call of an update that computes in memory of tiers.
template <class F>
void each_host_update(const Plan& plan, F visit) {
  for (const Segment& segment : plan.program("train").segments)
    for (const Action& action : segment.actions) {
      const Call& call = plan.calls[action.call];
      if (call.on_host && plan.labels[action.label].phase == Phase::update &&
          call.op->id != std::string_view(ENG_OP_COPY))
        visit(action, call);
    }
}

}  // namespace

eng_tier_info describe_tier(Registry& registry, const std::string& name, const Section& section) {
  const eng_tier table = registry.table<eng_tier>(ENG_TIER_KIND, name);
  Options options(section);
  Sink sink;
  eng_tier_info info{};
  info.struct_size = sizeof(info);
  const eng_status status = table.describe(options.get(), &info, sink.get());
  sink.check(status, status == ENG_INVALID ? Exit::usage : Exit::environment, "[offload] " + name);
  const auto number = [](double x) { return x >= 0 && x <= 1e300; };
  if (!number(info.read_bandwidth) || !number(info.write_bandwidth))
    throw Error(Exit::environment, fmt::format("tier {} describes itself with a bandwidth that is out of range", name));
  if (!(info.flags & ENG_TIER_HOST_MEMORY) && !(table.read && table.write))
    throw Error(Exit::environment, fmt::format("tier {} is not host memory, but lacks read or write", name));
  return info;
}

uint64_t tier_host_bytes(Registry& registry, const std::string& name, const Section& section, uint64_t bytes) {
  const eng_tier table = registry.table<eng_tier>(ENG_TIER_KIND, name);
  if (!table.host_bytes) return 0;
  Options options(section);
  Sink sink;
  uint64_t out = 0;
  sink.check(table.host_bytes(options.get(), bytes, &out, sink.get()), Exit::environment, "[offload] " + name);
  if (out > uint64_t{1} << 48)
    throw Error(Exit::environment,
                fmt::format("tier {} needs {} bytes of host memory, which is out of range", name, out));
  return out;
}

Offload make_offload(const Section& section, Registry& registry, bool discrete, const std::set<int32_t>& idle) {
  Offload out;
  for (const auto& [key, role] : {std::pair("optimizer", ENG_ROLE_STATE),
                                  {"master", ENG_ROLE_MASTER},
                                  {"gradients", ENG_ROLE_GRAD},
                                  {"parameters", ENG_ROLE_WEIGHT},
                                  {"activations", ENG_ROLE_ACT}}) {
    const std::string& tier = section.string(key);
    if (tier == "none" || idle.count(role)) continue;
    if (!registry.find(ENG_TIER_KIND, tier))
      throw Error(Exit::usage, fmt::format("offload.{} = {}: there is no such tier", key, toml_text(tier)),
                  fmt::format("tiers: none, {}\n{}", fmt::join(registry.names(ENG_TIER_KIND), ", "),
                              explain_missing(registry, ENG_TIER_KIND, tier)));
    out.roles[role] = tier;
    add(out, tier, section, registry);
  }
  out.update_on_host = section.string("update") != "device" && !idle.count(ENG_ROLE_STATE);
  out.update_late = out.update_on_host && section.boolean("update_late");
  if (section.has("host_share")) out.device_share = 1 - section.number("host_share");
  if (section.has("ratio")) out.ratio = section.number("ratio");
  // Storage is reached through memory of the host, unless the device's own is that.
  const bool stores = std::any_of(out.tiers.begin(), out.tiers.end(), [](const auto& t) { return t.storage; });
  if (stores && (discrete || out.update_on_host))
    add(out, usual(registry, ENG_TIER_KIND, "through which states on storage reach the device"), section, registry);
  return out;
}

namespace {

// Per block of this rank: the trained elements of the parameters that it has first, with which they are updated.
std::vector<double> trained(const Model& model) {
  std::vector<double> out(model.blocks.size(), 0);
  std::set<uint32_t> seen;
  for (uint32_t b = 0; b < out.size(); ++b)
    for (uint32_t p : model.blocks[b].params)
      if (seen.insert(p).second && !model.params[p].frozen && model.owns(b))
        out[b] += static_cast<double>(count(model.params[p].desc));
  return out;
}

// The first block from which on every gradient is final after the backward of its block. One that is summed with that
// of another stage is not; it is updated with the first block that has it.
size_t first_final(const Model& model) {
  std::set<uint32_t> summed = of_two_stages(model);
  size_t out = 0;
  for (uint32_t b = 0; b < model.blocks.size(); ++b)
    for (uint32_t p : model.blocks[b].params)
      if (summed.erase(p) && model.owns(b)) out = b + 1;
  return out;
}

[[noreturn]] void refuse(const char* key, const char* why, const char* other) {
  throw Error(Exit::usage, fmt::format("offload.{} = true: {}", key, why),
              fmt::format("remove offload.{}, or {}", key, other));
}

}  // namespace

void check_late(const Offload& offload, bool observed, bool limited) {
  const char* const key = "update_late";
  if (!offload.update_late) return;
  if (observed) refuse(key, "observers are shown each update in its own step", "[[observers]]");
  if (limited)
    refuse(key, "zero.live_limit cannot bound the leases of an update and of a forward together", "zero.live_limit");
}

void check_early(bool observed, bool limited) {
  const char* const key = "update_early";
  if (observed) refuse(key, "observers are shown each update once, and this one may be undone", "[[observers]]");
  if (limited)
    refuse(key, "zero.live_limit cannot bound the leases of an update and of a backward together", "zero.live_limit");
}

uint32_t early_block(const Model& model, double share, double most) {
  const std::vector<double> sizes = trained(model);
  const double all = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  double due = share * all, room = most * all;
  size_t first = sizes.size();
  const size_t final = first_final(model);
  while (first > final && due > 0 && due >= sizes[first - 1] / 2 && room >= sizes[first - 1])
    room -= sizes[--first], due -= sizes[first];
  return static_cast<uint32_t>(first);
}

double early_part(const Model& model, uint32_t first) {
  const std::vector<double> sizes = trained(model);
  const double all = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  return first < sizes.size() && all > 0 ? std::accumulate(sizes.begin() + first, sizes.end(), 0.0) / all : 0;
}

bool assumed_wrongly(const float* assumed, const float* scalars) {
  return assumed[ENG_S_CLIP] != scalars[ENG_S_CLIP] || assumed[ENG_S_OK] != scalars[ENG_S_OK];
}

Storage storage_of(const Offload& offload, const Section& section, Registry& registry) {
  for (const Offload::Tier& tier : offload.tiers)
    if (tier.storage) {
      const eng_tier_info info = describe_tier(registry, tier.name, section);
      return {tier.name, info.total_bytes, info.read_bandwidth, info.write_bandwidth};
    }
  return {};
}

uint64_t tiers_beside(const Plan& plan, const Section& section, Registry& registry) {
  uint64_t sum = 0;
  for (uint32_t a = plan.first_tier; a < plan.arenas.size(); ++a)
    sum += tier_host_bytes(registry, plan.arenas[a].device, section, plan.arenas[a].total());
  return sum;
}

std::unique_ptr<Kernels> host_kernels(Registry& registry, const Section& host) {
  const std::string device = host_device(registry);
  Section options = default_options(registry, device);
  options.set("threads", host.integer("threads"), "host.threads");
  return std::make_unique<Kernels>(registry, device, options);
}

void check_same_bits(const Plan& plan, const Kernels& host, const std::string& optimizer, const std::string& device) {
  std::set<uint32_t> seen;
  each_host_update(plan, [&](const Action& action, const Call& call) {
    if (!seen.insert(action.call).second || (host.find(call).flags & ENG_KERNEL_EXACT)) return;
    throw Error(Exit::usage,
                fmt::format("offload.update = \"host\": the update of {} uses {}, whose bits differ between the host "
                            "and device {}",
                            optimizer, call.op->id, device),
                "offload.update = \"device\"");
  });
}

std::optional<HostUpdate> host_update(const Plan& plan, const Kernels* kernels) {
  std::optional<HostUpdate> out;
  each_host_update(plan, [&](const Action& action, const Call& call) {
    const uint32_t of = kernels ? kernels->info().parallel : 0, threads = call.parallel ? call.parallel : of;
    if (!out) out = HostUpdate{threads, of, action.queue == Queue::host};
    out->threads = std::min(out->threads, threads);
  });
  for (const Buffer& b : plan.buffers)
    if (out && b.line == Line::undo) out->undo += b.bytes;
  return out;
}

// A tier on disks is refused for its folders: missing, not writable, on a file system that cannot do it.
static std::unique_ptr<Tier> open_tier(Registry& registry, const Offload::Tier& tier, const Section& section,
                                       uint32_t local_rank) try {
  return std::make_unique<Tier>(registry, tier, section, local_rank);
} catch (const Error& e) {
  if (!tier.storage || e.exit() != Exit::environment) throw;
  throw Error(Exit::disk, e.what(), e.help());
}

Host make_host(const Offload& offload, const Section& section, Registry& registry, const Kernels* kernels,
               uint32_t local_rank) {
  Host host;
  for (const Offload::Tier& tier : offload.tiers) host.tiers.push_back(open_tier(registry, tier, section, local_rank));
  host.kernels = kernels;
  if (kernels)
    host.device =
        std::make_unique<Device>(registry, kernels->device(), default_options(registry, kernels->device()), local_rank);
  return host;
}

void try_storage(const Plan& plan, const Offload& offload, const Section& section, Registry& registry) {
  for (size_t t = 0; t < offload.tiers.size(); ++t) {
    if (!offload.tiers[t].storage) continue;
    const auto tier = open_tier(registry, offload.tiers[t], section, 0);
    const uint64_t bytes = plan.arenas[plan.first_tier + t].total();
    tier->free(tier->alloc(bytes), bytes);
  }
}

}  // namespace eng
