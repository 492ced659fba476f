// SPDX-License-Identifier: Apache-2.0
// A plugin with nothing but kernels for the device "cuda", those of the function `make`:
//
//   ENG_CUDA_KERNELS(my::cuda_kernels, "org.example.my-cuda", "My ops on GPUs", "Kernels of ...", "f32 and bf16")
#pragma once

#include <vector>

#include "../plugin.hpp"
#include "engine/kernel.h"

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
  static const void* get_interface(const char* kind, const char* name) {
    return common::Asked{kind, name}(ENG_KERNELS_KIND, "cuda") ? &table : nullptr;
  }
  static constexpr eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, common::stop_nothing, get_interface};
};

}  // namespace cuda

#define ENG_CUDA_KERNELS(make, id, name, summary, of_kernels)                                                     \
  ENG_DESCRIPTION("[plugin]\nid = '" id "'\nname = '" name                                                        \
                  "'\nversion = '0.1.0'\nlicense = 'Apache-2.0'\nsummary = '" summary                             \
                  "'\n[[provides]]\nkind = '" ENG_KERNELS_DRAFT "'\nname = 'cuda'\nsummary = '" of_kernels "'\n") \
  ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {                                                      \
    return &cuda::KernelsPlugin<make, eng_description>::plugin;                                                   \
  }
