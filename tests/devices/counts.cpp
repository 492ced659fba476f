// SPDX-License-Identifier: Apache-2.0
// Counters that far keeps of itself.
#include <dlfcn.h>

#include <atomic>

#include "engine/plugin.h"
#include "train.hpp"

namespace devices {

Counts counts() {
  static const std::atomic<uint64_t>* const of = [] {
    void* library = dlopen(FAR, RTLD_NOW | RTLD_LOCAL);
    const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
    return static_cast<const std::atomic<uint64_t>*>(
        query(ENG_ABI_MINOR)->get_interface("org.engine.test.counts/1", "far"));
  }();
  return {of[0], of[1], of[2]};
}

int64_t number_of(const eng::Plan& plan, const std::string& program, size_t segment, size_t action) {
  int64_t actions = 0, collectives = int64_t{1} << 40;
  for (const eng::Program& p : plan.programs)
    for (size_t s = 0; s < p.segments.size(); ++s)
      for (size_t a = 0; a < p.segments[s].actions.size(); ++a) {
        int64_t& number = plan.calls[p.segments[s].actions[a].call].op->collective ? collectives : actions;
        if (p.name == program && s == segment && a == action) return number;
        ++number;
      }
  return -1;
}

}  // namespace devices
