// SPDX-License-Identifier: Apache-2.0
#include "threads.hpp"

#include <sched.h>

#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cpu {
namespace {

// "package:core" of a logical cpu, or "" where the kernel does not say.
std::string core_of(size_t logical) {
  const std::string base = "/sys/devices/system/cpu/cpu" + std::to_string(logical) + "/topology/";
  std::string package, core;
  if (!(std::ifstream(base + "physical_package_id") >> package)) return "";
  if (!(std::ifstream(base + "core_id") >> core)) return "";
  return package + ":" + core;
}

}  // namespace

void wait_for(const std::atomic<int32_t>& counter, int32_t least) {
  constexpr int spins = 2000, yields = 200;
  int32_t now;
  for (int tries = 0; (now = counter.load(std::memory_order_acquire)) < least; ++tries)
    if (tries < spins) {
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    } else if (tries < spins + yields) {
      sched_yield();
    } else {
      counter.wait(now, std::memory_order_acquire);
    }
}

unsigned physical_cores() {
  // The mask can be larger than cpu_set_t on big machines: grow until it fits.
  for (size_t bytes = sizeof(cpu_set_t); bytes <= (size_t{1} << 16); bytes *= 2) {
    std::vector<unsigned char> mask(bytes, 0);
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    std::set<std::string> cores;
    for (size_t k = 0; k < bytes * 8; ++k) {
      if (!(mask[k / 8] >> (k % 8) & 1)) continue;
      const std::string core = core_of(k);
      cores.insert(core.empty() ? "cpu" + std::to_string(k) : core);
    }
    return cores.empty() ? 1 : static_cast<unsigned>(cores.size());
  }
  return 1;
}

}  // namespace cpu
