// SPDX-License-Identifier: Apache-2.0
#include "select.hpp"

#include <cstring>

#include "../device.hpp"

namespace cpu {

const simd_table& simd_for(const void* device) {
  [[maybe_unused]] const char* name = device_of(device).isa->name;
#ifdef CPU_AVX512
  if (std::strncmp(name, "avx512", 6) == 0) return simd_avx512;
#endif
#ifdef CPU_AVX2
  if (std::strcmp(name, "avx2") == 0) return simd_avx2;
#endif
  return simd_portable;
}

}  // namespace cpu
