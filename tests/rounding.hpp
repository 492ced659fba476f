// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding as engine/ops.h states it, for tests to compare with.
#pragma once

#include <cstdint>
#include <cstring>

namespace rounding {

// The values and the update that are rounded.
struct Place {
  int64_t seed = 42, stream = 3, first = 0, update = 7;
};

struct Words {
  uint32_t x[4];
};
inline Words philox(Words c, uint64_t seed) {
  uint64_t k[2] = {seed & 0xffffffff, seed >> 32};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c.x[0], b = uint64_t{0xCD9E8D57} * c.x[2];
    c = {{uint32_t(b >> 32 ^ c.x[1] ^ k[0]), uint32_t(b), uint32_t(a >> 32 ^ c.x[3] ^ k[1]), uint32_t(a)}};
    k[0] = (k[0] + 0x9E3779B9) & 0xffffffff, k[1] = (k[1] + 0xBB67AE85) & 0xffffffff;
  }
  return c;
}

// The random number that is added to value k of element i.
inline uint32_t number(const Place& at, int64_t i, int k) {
  const uint64_t e = uint64_t(at.first + i), b = e / 32 * 16 + e % 16;
  const Words c = {
      {uint32_t(b), uint32_t(b >> 32), uint32_t(at.update), 0x80000000u + static_cast<uint32_t>(at.stream)}};
  const uint32_t word = philox(c, uint64_t(at.seed)).x[k];
  return e / 16 % 2 ? word >> 16 : word & 0xffff;
}

// The pattern of what is kept of x.
inline uint16_t upper(float x, uint32_t r) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t((bits + r) >> 16);
}

}  // namespace rounding
