// SPDX-License-Identifier: Apache-2.0
// The root table of a plugin that does nothing when it is started and stopped.
#pragma once

#include <cstring>

#include "engine/plugin.h"

namespace common {

// The table that the host asks for: is(ENG_KERNELS_KIND, "cpu").
struct Asked {
  const char *kind, *name;
  bool operator()(const char* k, const char* n) const { return std::strcmp(kind, k) == 0 && std::strcmp(name, n) == 0; }
};

inline eng_status start_nothing(const eng_host*, eng_error*) {
  return ENG_OK;
}
inline void stop_nothing() {}

constexpr eng_plugin plain_plugin(const char* (*describe)(), const void* (*get_interface)(const char*, const char*)) {
  return {ENG_PLUGIN_INIT, describe, start_nothing, stop_nothing, get_interface};
}

}  // namespace common
