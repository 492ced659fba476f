// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011) and how an element of a parameter becomes a number.
//
// The whole mapping, so that every kernel on every device gives the same values:
//   key     = the two 32-bit halves of `seed`, low half first
//   counter = block (64 bits, low half first), then stream (64 bits, low half first)
//   uniform of 32 bits x: (x + 0.5) * 2^-32, in f64; never 0, never 1
//   uniform element e: block e / 4, word e % 4;  value = low + (high - low) * u
//   normal element e:  block e / 2, words 0 and 1 are u1, u2;  radius = sqrt(-2 ln u1), angle = 2 pi u2;
//                      e even: z = radius * cos(angle), e odd: z = radius * sin(angle);  value = mean + std * z
// Everything is computed in f64, and each operation is rounded. The result is rounded once to the type of the output.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "engine/ops.h"

namespace common {

using PhiloxWords = std::array<uint32_t, 4>;

inline PhiloxWords philox4x32_10(uint64_t counter_lo, uint64_t counter_hi, uint64_t key) {
  uint32_t c0 = uint32_t(counter_lo), c1 = uint32_t(counter_lo >> 32);
  uint32_t c2 = uint32_t(counter_hi), c3 = uint32_t(counter_hi >> 32);
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0, c1 = uint32_t(b);
    c2 = uint32_t(a >> 32) ^ c3 ^ k1, c3 = uint32_t(a);
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// (0, 1)
inline double philox_unit(uint32_t word) {
  return (double(word) + 0.5) * 0x1p-32;
}

// The two standard normals of one block: elements 2 * block and 2 * block + 1.
inline std::array<double, 2> philox_normal_pair(uint64_t block, uint64_t stream, uint64_t seed) {
  const PhiloxWords w = philox4x32_10(block, stream, seed);
  const double radius = std::sqrt(-2.0 * std::log(philox_unit(w[0])));
  const double angle = 2.0 * 3.14159265358979323846 * philox_unit(w[1]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

inline double philox_normal(uint64_t element, uint64_t stream, uint64_t seed) {
  return philox_normal_pair(element / 2, stream, seed)[element % 2];
}

inline double philox_uniform(uint64_t element, uint64_t stream, uint64_t seed) {
  return philox_unit(philox4x32_10(element / 4, stream, seed)[element % 4]);
}

// Dropout numbers its Philox blocks within a sequence: counter = [block, sequence, step, stream], 32 bits each
// (engine/ops.h).
inline uint64_t dropout_low(uint64_t low, uint64_t high) {
  return (low & 0xFFFFFFFF) | high << 32;
}
// The number of this rank's micro-batch among all micro-batches of the step, over all ranks. The sequences of a step
// are numbered in this order.
inline int64_t dropout_row(const int64_t* counters) {
  const int64_t world = counters[ENG_C_WORLD] < 1 ? 1 : counters[ENG_C_WORLD];
  return counters[ENG_C_MICRO] * world + counters[ENG_C_RANK];
}
// An element is dropped when its 32-bit word is below this.
inline uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(p * 0x1p32);
}

}  // namespace common
