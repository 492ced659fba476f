// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011), as engine/ops.h and plugins/common/philox.hpp number it.
#pragma once

#include "device.cuh"

namespace cuda {

struct Words {
  uint32_t at[4];
};
__device__ __forceinline__ Words philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0, c1 = static_cast<uint32_t>(b);
    c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1, c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace cuda
