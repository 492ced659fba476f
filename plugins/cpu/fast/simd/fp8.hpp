// SPDX-License-Identifier: Apache-2.0
// Values of formats of 8 bits. The loops are plain: the compiler makes vectors of them.
#pragma once

#include "../../../common/simd/half.hpp"
#include "table.hpp"

namespace cpu {
namespace {

constexpr int64_t fp8_strip = 256;  // elements that are widened at a time

// f(first, values, n) for each strip of x, widened to f32.
template <class T, class F>
SIMD_INLINE inline void each_strip(const T* x, int64_t begin, int64_t end, F f) {
  float values[fp8_strip];
  for (int64_t first = begin; first < end; first += fp8_strip) {
    const int64_t n = end - first < fp8_strip ? end - first : fp8_strip;
    float* const to = values;
    const T* const from = x + first;
    for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(to + i, load(from + i, k), k); });
    f(first, values, n);
  }
}

template <class T>
uint32_t largest_finite(const T* x, int64_t begin, int64_t end) {
  uint32_t largest = 0;
  each_strip(x, begin, end, [&](int64_t, const float* values, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; ++i) {
      uint32_t size;
      __builtin_memcpy(&size, values + i, sizeof size);
      size &= 0x7fffffffU;
      size = size < 0x7f800000U ? size : 0;
      most = size > most ? size : most;
    }
    largest = most > largest ? most : largest;
  });
  return largest;
}

template <class T>
void to_fp8(const fp8_format& format, float up, float down, const T* x, bf16* y, int64_t begin, int64_t end) {
  const uint32_t least = format.least, room = 23 - format.fraction, odd = format.infinite ? 0x7f800001U : 0x7f800000U;
  const float most = format.most;
  each_strip(x, begin, end, [=](int64_t first, const float* values, int64_t n) {
    float rounded[fp8_strip];
    for (int64_t i = 0; i < n; ++i) {
      const float v = values[i] * up;
      uint32_t bits, shift_bits, kept, given;
      float shift;
      __builtin_memcpy(&bits, &v, sizeof bits);
      __builtin_memcpy(&given, values + i, sizeof given);
      // A finite value may become infinite by the scale; it is then as too large as others.
      const uint32_t size = given & 0x7fffffffU, biased = (bits & 0x7fffffffU) >> 23;
      const uint32_t exponent = biased > least ? biased < 230 ? biased : 230 : least;
      shift_bits = ((exponent + room) << 23) | 0x400000U;
      __builtin_memcpy(&shift, &shift_bits, sizeof shift);
      float z = (v + shift) - shift;
      z = z > most ? most : z < -most ? -most : z;
      __builtin_memcpy(&kept, &z, sizeof kept);
      kept |= bits & 0x80000000U;
      kept = size >= odd ? bits | 0x7fc00000U : size == 0x7f800000U ? bits : kept;
      __builtin_memcpy(rounded + i, &kept, sizeof kept);
      rounded[i] *= down;
    }
    const float* const from = rounded;
    bf16* const to = y + first;
    for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(to + i, load(from + i, k), k); });
  });
}

}  // namespace
}  // namespace cpu
