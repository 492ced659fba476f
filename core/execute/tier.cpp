// SPDX-License-Identifier: Apache-2.0
#include "core/execute/tier.hpp"

namespace eng {

eng_tier_info describe_tier(Registry& registry, const std::string& name, const Section& section) {
  const eng_tier table = registry.table<eng_tier>(ENG_TIER_KIND, name);
  Options options(section);
  Sink sink;
  eng_tier_info info{};
  info.struct_size = sizeof(info);
  sink.check(table.describe(options.get(), &info, sink.get()), Exit::environment, "[offload] " + name);
  if (!(info.flags & ENG_TIER_HOST_MEMORY))
    throw Error(Exit::environment, fmt::format("tier {} is not host memory, which this engine does not support", name));
  return info;
}

Tier::Tier(Registry& registry, const std::string& name, const Section& section, uint32_t local_rank)
    : name_(name), table_(registry.table<eng_tier>(ENG_TIER_KIND, name)) {
  Options options(section);
  Sink sink;
  sink.check(table_.create(options.get(), local_rank, &self_, sink.get()), Exit::environment, "[offload] " + name);
}

Tier::~Tier() {
  table_.destroy(self_);
}

void* Tier::alloc(uint64_t bytes) {
  void* out = nullptr;
  Sink sink;
  sink.check(table_.alloc(self_, bytes, &out, sink.get()), Exit::host_memory,
             fmt::format("tier {}, {} for the arena", name_, format_bytes(static_cast<double>(bytes))));
  if (out && reinterpret_cast<uintptr_t>(out) % 4096 == 0) return out;
  if (out) free(out, bytes);
  throw Error(Exit::environment, fmt::format("tier {}: its alloc gave {}", name_,
                                             out ? "memory that is not aligned to 4096 bytes" : "NULL"));
}

}  // namespace eng
