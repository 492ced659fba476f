// SPDX-License-Identifier: Apache-2.0
// Tier "host": ordinary memory of the host, exactly as large as the plan says.
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "../common/error.hpp"
#include "../common/plugin.hpp"
#include "engine/plugin.h"
#include "engine/tier.h"

namespace {

using common::Error;

uint64_t mapped_size(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes < page ? page : (bytes + page - 1) / page * page;
}

constexpr int most_nodes = 1024;

// True if a list of processors, "0-3,8,10-11", has one on which this process may run.
bool has_own(const std::string& list, const cpu_set_t& own) {
  for (const char* at = list.c_str(); *at;) {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at) return false;
    const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
    for (long cpu = std::max(first, 0L); cpu <= last && cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &own)) return true;
    at = *end == ',' ? end + 1 : "";
  }
  return false;
}

// A process whose processors are all in one node gets memory of that node, as each of its threads would. If they are in
// several, no part of an arena is nearer to the threads that will use it than another: its pages go to these nodes in
// turn, so that the memory of all of them is read at a time. A system that does not permit that keeps its own choice.
void place_in_own_nodes(void* arena, uint64_t size) {
  cpu_set_t own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  constexpr int bits = 8 * sizeof(unsigned long);
  unsigned long nodes[most_nodes / bits] = {};
  int count = 0;
  for (int node = 0; node < most_nodes; ++node) {
    std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    std::string list;
    if (!file && node > 64) break;  // numbers may have gaps
    if (std::getline(file, list) && has_own(list, own)) nodes[node / bits] |= 1ul << (node % bits), ++count;
  }
  constexpr long interleave = 3;  // MPOL_INTERLEAVE of linux/mempolicy.h
  if (count > 1) (void)syscall(SYS_mbind, arena, size, interleave, nodes, long{most_nodes} + 1, 0L);
}

// The kernel gives zeroed pages at once, to several threads faster than to one; an old one gives each when it is
// written. 0 or what was wrong.
int populate(char* arena, uint64_t size) {
  cpu_set_t own;
  CPU_ZERO(&own);
  const int cores = sched_getaffinity(0, sizeof own, &own) == 0 ? CPU_COUNT(&own) : 1;
  constexpr uint64_t least = uint64_t{64} << 20, page = uint64_t{2} << 20;  // large pages whole
  const uint64_t n = std::clamp<uint64_t>(size / least, 1, static_cast<uint64_t>(std::clamp(cores, 1, 16)));
  const uint64_t each = (size / n + page - 1) / page * page;
  std::vector<int> wrong(n, 0);
  const auto share = [&](uint64_t k) {
    const uint64_t first = std::min(size, k * each), last = k + 1 == n ? size : std::min(size, first + each);
    if (first == last || madvise(arena + first, last - first, MADV_POPULATE_WRITE) == 0) return;
    if (errno == EINVAL)
      std::memset(arena + first, 0, last - first);
    else
      wrong[k] = errno;
  };
  std::vector<std::thread> others;
  for (uint64_t k = 1; k < n; ++k) try {
      others.emplace_back(share, k);
    } catch (const std::exception&) {  // the system has no more threads
      share(k);
    }
  share(0);
  for (std::thread& other : others) other.join();
  return *std::max_element(wrong.begin(), wrong.end());
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
    place_in_own_nodes(arena, size);
    if (const int why = populate(static_cast<char*>(arena), size)) {
      munmap(arena, size);
      errno = why;
      fail();
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
kind = ")" ENG_TIER_DRAFT R"("
name = "host"
summary = "memory of the host, of exactly the planned size, resident from the start"
usual = true
fit = { order = 10, discrete = true }
)")

const char* describe_plugin() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_TIER_KIND) == 0 && std::strcmp(name, "host") == 0 ? &tier : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe_plugin, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
