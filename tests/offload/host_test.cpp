// SPDX-License-Identifier: Apache-2.0
// The tier "host": all of an arena is there, zeroed, when alloc returns, and gone when it is given back.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "core/base/error.hpp"
#include "core/execute/tier.hpp"
#include "session/plugins/search.hpp"
#include "tests/sanitized.hpp"

namespace {

uint64_t resident() {
  uint64_t pages = 0, all = 0;
  std::ifstream("/proc/self/statm") >> all >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

eng::Registry& plugins() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/offload/host.eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

}  // namespace

TEST_CASE("host: an arena is resident, zero, and as large as it was asked for") {
  eng::Tier tier(plugins(), {"host", false}, eng::Section(), 0);
  // Below and above what several threads fill; the end of a page and of a large page.
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{300001}, (uint64_t{130} << 20) + 4097}) {
    [[maybe_unused]] const uint64_t before = resident();
    char* const arena = static_cast<char*>(tier.alloc(bytes));
#ifndef SANITIZED
    CHECK(resident() - before >= bytes);
    CHECK(resident() - before < bytes + (1 << 20));
#endif
    CHECK(reinterpret_cast<uintptr_t>(arena) % 4096 == 0);
    const bool zero = bytes == 0 || (arena[0] == 0 && std::memcmp(arena, arena + 1, bytes - 1) == 0);
    CHECK(zero);
    std::memset(arena, 1, bytes);
    tier.free(arena, bytes);
#ifndef SANITIZED
    CHECK(resident() < before + (1 << 20));
#endif
  }
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX}) {
    try {
      tier.free(tier.alloc(bytes), bytes);
      FAIL("it gave " << bytes << " bytes");
    } catch (const eng::Error& e) {
      CHECK(e.exit() == eng::Exit::host_memory);
      CHECK_THAT(e.what(), Catch::Contains("tier host, ") && Catch::Contains(std::to_string(bytes)));
    }
  }
}
