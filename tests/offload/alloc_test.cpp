// SPDX-License-Identifier: Apache-2.0
// Reading and writing allocate nothing.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "disks.hpp"
#include "tests/sanitized.hpp"

// The sanitizers bring their own allocator; without them this program's malloc counts for all shared objects too.
#ifndef SANITIZED
namespace {
std::atomic<uint64_t> allocations{0};
}
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);

void* malloc(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, bytes);
}
}

TEST_CASE("nvme: a read and a write allocate nothing") {
  const disks::Folder folder;
  for (const bool direct : disks::direct_choices(folder.path)) {
    const uint64_t before = allocations;
    disks::Tier tier({.paths = {folder.path.string()}, .block = 8192, .depth = 4, .direct = direct});
    const disks::Arena arena(tier, 200000);
    CHECK(allocations > before + 5);  // the count sees what the plugin does
    std::vector<char> memory(200000, 'b');
    const eng_tier& table = disks::table();
    eng_status status = ENG_OK;
    const uint64_t start = allocations;
    for (const uint64_t offset : {0, 3, 4096}) {
      status |= table.write(tier.self, arena.self, offset, memory.data(), 190001, nullptr);
      status |= table.read(tier.self, arena.self, offset, memory.data() + 1, 190001, nullptr);
    }
    const uint64_t during = allocations - start;
    CHECK(status == ENG_OK);
    CHECK(during == 0);
  }
}
#endif
