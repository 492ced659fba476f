// SPDX-License-Identifier: Apache-2.0
// Tier "host": ordinary memory of the host, exactly as large as the plan says.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "../common/error.hpp"
#include "engine/plugin.h"
#include "engine/tier.h"

namespace {

using common::Error;

uint64_t mapped_size(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes < page ? page : (bytes + page - 1) / page * page;
}

eng_status describe(const eng_options*, eng_tier_info* out, eng_error*) {
  out->flags = ENG_TIER_HOST_MEMORY;
  out->total_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return ENG_OK;
}

// There is nothing to remember.
char object;

eng_status create(const eng_options*, uint32_t, void** self, eng_error*) {
  *self = &object;
  return ENG_OK;
}

void destroy(void*) {}

eng_status alloc(void*, uint64_t bytes, void** out, eng_error* sink) {
  return common::guarded(sink, "allocating", [&] {
    const auto fail = [&] {
      throw Error{ENG_NO_MEMORY, "no arena of " + std::to_string(bytes) + " bytes: " + std::strerror(errno)};
    };
    if (bytes > std::numeric_limits<int64_t>::max() / 2) errno = ENOMEM, fail();
    const uint64_t size = mapped_size(bytes);
    void* arena = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) fail();
    madvise(arena, size, MADV_HUGEPAGE);
    // The kernel gives zeroed pages at once; an old one gives each when it is written.
    if (madvise(arena, size, MADV_POPULATE_WRITE) != 0) {
      if (errno != EINVAL) {
        const int why = errno;
        munmap(arena, size);
        errno = why;
        fail();
      }
      std::memset(arena, 0, size);
    }
    *out = arena;
  });
}

void free_arena(void*, void* arena, uint64_t bytes) {
  if (arena) munmap(arena, mapped_size(bytes));
}

const eng_tier tier = {.struct_size = sizeof(eng_tier),
                       .minor = 0,
                       .describe = describe,
                       .create = create,
                       .destroy = destroy,
                       .alloc = alloc,
                       .free = free_arena,
                       .host_bytes = nullptr,
                       .read = nullptr,
                       .write = nullptr};

ENG_DESCRIPTION(R"([plugin]
id = "engine.offload.host"
name = "Host memory"
version = "0.1.0"
license = "Apache-2.0"
summary = "States in ordinary memory of the host"

[[provides]]
kind = "eng.tier/1"
name = "host"
summary = "memory of the host, of exactly the planned size, resident from the start"
)")

const char* describe_plugin() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_TIER_KIND) == 0 && std::strcmp(name, "host") == 0 ? &tier : nullptr;
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
