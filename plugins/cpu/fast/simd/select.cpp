// SPDX-License-Identifier: Apache-2.0
#include "select.hpp"

#include <cstring>

#include "../device.hpp"

namespace cpu {

const simd_table& simd_for(const void* device) {
#ifdef CPU_X86
  const char* name = device_of(device).isa->name;
  if (std::strncmp(name, "avx512", 6) == 0) return simd_avx512;
  if (std::strcmp(name, "avx2") == 0) return simd_avx2;
#else
  (void)device;
#endif
  return simd_portable;
}

}  // namespace cpu
