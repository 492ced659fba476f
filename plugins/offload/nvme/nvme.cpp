// SPDX-License-Identifier: Apache-2.0
// Tier "nvme": files on disks, without a name, past the page cache, every block with a checksum.
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>

#include "arena.hpp"
#include "engine/plugin.h"
#include "engine/tier.h"

namespace {

const eng_host* host;

struct Tier {
  explicit Tier(const nvme::Settings& given) : settings(given), reads(given), writes(given) {}
  nvme::Settings settings;
  nvme::Lane reads, writes;
};

void tell_once(const char* text) {
  static std::atomic<bool> told{false};
  if (host && !told.exchange(true)) host->log(host, ENG_LOG_WARNING, text, std::strlen(text));
}

eng_status describe(const eng_options* options, eng_tier_info* out, eng_error* sink) {
  return common::guarded(sink, "describing", [&] {
    const nvme::Settings settings = nvme::read_settings(options);
    const uint64_t total = nvme::capacity(settings.paths);
    out->flags = 0;
    out->total_bytes = total;
    out->read_bandwidth = settings.read_bandwidth;
    out->write_bandwidth = settings.write_bandwidth;
  });
}

eng_status create(const eng_options* options, uint32_t, void** self, eng_error* sink) {
  return common::guarded(sink, "creating", [&] {
    const nvme::Settings settings = nvme::read_settings(options);
    // Refuses now what no arena could get.
    for (const std::string& path : settings.paths) nvme::File(path, settings.direct);
    auto made = std::make_unique<Tier>(settings);
    if (made->reads.queue.in_turn())
      tell_once("this system permits no io_uring: requests to the disks go one after the other, which is slower");
    *self = made.release();
  });
}

void destroy(void* self) {
  delete static_cast<Tier*>(self);
}

eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* sink) {
  return common::guarded(sink, "allocating", [&] {
    const Tier& tier = *static_cast<const Tier*>(self);
    if (bytes > std::numeric_limits<int64_t>::max() / 2)
      throw nvme::Error{ENG_NO_MEMORY, "no disk has " + std::to_string(bytes) + " bytes"};
    *out = new nvme::Arena(tier.settings, bytes);
  });
}

void free_arena(void*, void* arena, uint64_t) {
  delete static_cast<nvme::Arena*>(arena);
}

// The memory of this file's code, of liburing and of two threads' stacks: measured.
constexpr uint64_t code = 170'000;

eng_status host_bytes(const eng_options* options, uint64_t bytes, uint64_t* out, eng_error* sink) {
  return common::guarded(sink, "counting", [&] {
    const nvme::Settings settings = nvme::read_settings(options);
    *out = code + 2 * nvme::Lane::host_bytes(settings) + nvme::Arena::host_bytes(bytes);
  });
}

eng_status read(void* self, void* arena, uint64_t offset, void* to, uint64_t bytes, eng_error* sink) {
  return common::guarded(sink, "reading", [&] {
    nvme::transfer(*static_cast<nvme::Arena*>(arena), static_cast<Tier*>(self)->reads, false, offset,
                   static_cast<char*>(to), bytes);
  });
}

eng_status write(void* self, void* arena, uint64_t offset, const void* from, uint64_t bytes, eng_error* sink) {
  return common::guarded(sink, "writing", [&] {
    // A write only reads this memory.
    nvme::transfer(*static_cast<nvme::Arena*>(arena), static_cast<Tier*>(self)->writes, true, offset,
                   const_cast<char*>(static_cast<const char*>(from)), bytes);
  });
}

const eng_tier tier = {.struct_size = sizeof(eng_tier),
                       .minor = 0,
                       .describe = describe,
                       .create = create,
                       .destroy = destroy,
                       .alloc = alloc,
                       .free = free_arena,
                       .host_bytes = host_bytes,
                       .read = read,
                       .write = write};

ENG_DESCRIPTION(R"([plugin]
id = "engine.offload.nvme"
name = "Disks"
version = "0.1.0"
license = "Apache-2.0"
summary = "States in files on disks"

[[provides]]
kind = ")" ENG_TIER_DRAFT R"("
name = "nvme"
summary = "files without a name in offload.nvme_paths, striped, with a checksum of every 4096 bytes"
fit = { order = 20 }

[provides.options]
nvme_paths = { type = "strings", required = true, help = "absolute folders on fast disks, one for each disk" }
nvme_block = { type = "bytes", default = 1048576, min = 4096, help = "bytes of one request, a multiple of 4096" }
nvme_depth = { type = "int", default = 16, min = 1, max = 1024, help = "requests at a time, for reads and for writes each" }
nvme_direct = { type = "bool", default = true, help = "past the page cache (O_DIRECT), so that memory is as planned" }
nvme_read_bandwidth = { type = "bytes", min = 1, help = "bytes per second that all disks together read, for the plan's estimate" }
nvme_write_bandwidth = { type = "bytes", min = 1, help = "bytes per second that all disks together write" }
)")

const char* describe_plugin() {
  return eng_description;
}
eng_status start(const eng_host* given, eng_error*) {
  host = given;
  return ENG_OK;
}
void stop() {
  host = nullptr;
}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_TIER_KIND) == 0 && std::strcmp(name, "nvme") == 0 ? &tier : nullptr;
}

const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                           .abi_minor = ENG_ABI_MINOR,
                           .draft_id = ENG_ABI_DRAFT_ID,
                           .describe = describe_plugin,
                           .start = start,
                           .stop = stop,
                           .get_interface = get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
