// SPDX-License-Identifier: Apache-2.0
// A plugin with nothing but kernels for the device "cuda":
//
//   ENG_DESCRIPTION("...")
//   ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
//     return &cuda::KernelsPlugin<my_kernels, eng_description>::plugin;
//   }
#pragma once

#include <cstring>
#include <vector>

#include "engine/kernel.h"
#include "engine/plugin.h"

namespace cuda {

template <std::vector<const eng_kernel*> (*make)(), const char* description>
struct KernelsPlugin {
  inline static std::vector<const eng_kernel*> collected;
  inline static eng_kernels table;
  static const char* describe() { return description; }
  static eng_status start(const eng_host*, eng_error*) {
    try {
      collected = make();
      table = {sizeof(eng_kernels), static_cast<uint32_t>(collected.size()), collected.data()};
      return ENG_OK;
    } catch (...) {
      return ENG_NO_MEMORY;
    }
  }
  static void stop() {}
  static const void* get_interface(const char* kind, const char* name) {
    return std::strcmp(kind, ENG_KERNELS_KIND) == 0 && std::strcmp(name, "cuda") == 0 ? &table : nullptr;
  }
  static constexpr eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
};

}  // namespace cuda
