// SPDX-License-Identifier: Apache-2.0
#include "core/execute/tier.hpp"

namespace eng {

Tier::Tier(Registry& registry, const Offload::Tier& which, const Section& section, uint32_t local_rank)
    : name_(which.name), storage_(which.storage), table_(registry.table<eng_tier>(ENG_TIER_KIND, which.name)) {
  Options options(section);
  call_plugin(Exit::environment, "[offload] " + name_, table_.create, options.get(), local_rank, &self_);
}

Tier::~Tier() {
  table_.destroy(self_);
}

void* Tier::alloc(uint64_t bytes) {
  void* out = nullptr;
  call_plugin(storage_ ? Exit::disk : Exit::host_memory,
              fmt::format("tier {}, {} for the arena", name_, format_bytes(static_cast<double>(bytes))), table_.alloc,
              self_, bytes, &out);
  if (out && (storage_ || reinterpret_cast<uintptr_t>(out) % 4096 == 0)) return out;
  if (out) free(out, bytes);
  throw fault("tier {}: its alloc gave {}", name_, out ? "memory that is not aligned to 4096 bytes" : "NULL");
}

void Tier::read(void* arena, uint64_t offset, void* to, uint64_t bytes, const std::string& what) {
  const auto who = [&] { return fmt::format("tier {}, read {}", name_, what); };
  call_plugin(Exit::disk, who, table_.read, self_, arena, offset, to, bytes);
}

void Tier::write(void* arena, uint64_t offset, const void* from, uint64_t bytes, const std::string& what) {
  const auto who = [&] { return fmt::format("tier {}, write {}", name_, what); };
  call_plugin(Exit::disk, who, table_.write, self_, arena, offset, from, bytes);
}

namespace {

eng_status copy_storage(void* record, const eng_exec*, eng_error* error) {
  const StorageCopy& t = *static_cast<const StorageCopy*>(record);
  const eng_tier& table = t.tier.table();
  return t.write ? table.write(t.tier.self(), t.arena, t.offset, t.memory, t.bytes, error)
                 : table.read(t.tier.self(), t.arena, t.offset, t.memory, t.bytes, error);
}

}  // namespace

const eng_kernel storage_kernel = {.struct_size = sizeof(eng_kernel),
                                   .flags = ENG_KERNEL_HOST,
                                   .op = "eng.copy/1",
                                   .workspace = nullptr,
                                   .prepare = nullptr,
                                   .bind = nullptr,
                                   .launch = copy_storage,
                                   .drop_record = [](void* record) { delete static_cast<StorageCopy*>(record); },
                                   .drop_state = [](void*) {}};

}  // namespace eng
