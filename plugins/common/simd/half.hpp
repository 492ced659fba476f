// SPDX-License-Identifier: Apache-2.0
// Registers of floats from and to 16-bit memory: widened exactly, rounded to nearest even. With this and vec.hpp a loop
// over `const T*` serves float, bf16 and f16.
//
// bf16 and f16 have no functions of their own: see vec.hpp.
#pragma once

#include <stddef.h>

#include "names.hpp"
#include "vec.hpp"

namespace cpu {
namespace {

#if defined(__AVX512F__)

SIMD_INLINE inline vec widen(__m256i x, bf16) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))};
}
SIMD_INLINE inline vec widen(__m256i x, f16) {
  return {_mm512_cvtph_ps(x)};
}
// A NaN becomes a quiet one.
SIMD_INLINE inline __m256i narrow(vec a, bf16) {
  const __m512i bits = _mm512_castps_si512(a.x), high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff)), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.x, a.x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40)));
}
SIMD_INLINE inline __m256i narrow(vec a, f16) {
  return _mm512_cvtps_ph(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
using halves = __m256i;
SIMD_INLINE inline halves load_halves(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
SIMD_INLINE inline void store_halves(void* p, halves x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), x);
}

#elif defined(__AVX2__)

SIMD_INLINE inline vec widen(__m128i x, bf16) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))};
}
SIMD_INLINE inline vec widen(__m128i x, f16) {
  return {_mm256_cvtph_ps(x)};
}
SIMD_INLINE inline __m128i narrow(vec a, bf16) {
  const __m256i bits = _mm256_castps_si256(a.x), high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i up = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff)), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.x, a.x, _CMP_UNORD_Q));
  const __m256i all = _mm256_blendv_epi8(up, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
SIMD_INLINE inline __m128i narrow(vec a, f16) {
  return _mm256_cvtps_ph(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
using halves = __m128i;
SIMD_INLINE inline halves load_halves(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
SIMD_INLINE inline void store_halves(void* p, halves x) {
  _mm_storeu_si128(static_cast<__m128i*>(p), x);
}

#else

// One value at a time, with integers.
SIMD_INLINE inline float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
SIMD_INLINE inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
SIMD_INLINE inline float widen_one(uint16_t x, bf16) {
  return float_of(uint32_t{x} << 16);
}
SIMD_INLINE inline float widen_one(uint16_t x, f16) {
  const uint32_t sign = uint32_t{x} >> 15 << 31, exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;
  if (exponent == 0) return float_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24f));  // below the normal ones
  return float_of(sign | (exponent == 31 ? 0xff : exponent + 112) << 23 | fraction << 13);
}
SIMD_INLINE inline uint16_t narrow_one(float x, bf16) {
  const uint32_t bits = bits_of(x), high = bits >> 16;
  return static_cast<uint16_t>(x != x ? high | 0x40 : (bits + 0x7fff + (high & 1)) >> 16);
}
SIMD_INLINE inline uint16_t narrow_one(float x, f16) {
  const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000;
  const float size = float_of(bits & 0x7fffffff);
  if (x != x) return static_cast<uint16_t>(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // half of the way to what would be 65536
  // Below the smallest normal number the grid is 2^-24; the sum with 0.5 rounds to it.
  if (size < 0x1p-14f) return static_cast<uint16_t>(sign | (bits_of(size + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | ((((bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10)));
}
struct halves {
  uint16_t x[width];
};
template <class T>
SIMD_INLINE inline vec widen(halves h, T type) {
  float out[width];
  for (int64_t k = 0; k < width; ++k) out[k] = widen_one(h.x[k], type);
  return load_all(out);
}
template <class T>
SIMD_INLINE inline halves narrow(vec a, T type) {
  float in[width];
  store_all(in, a);
  halves h;
  for (int64_t k = 0; k < width; ++k) h.x[k] = narrow_one(in[k], type);
  return h;
}
SIMD_INLINE inline halves load_halves(const void* p) {
  halves h;
  __builtin_memcpy(&h, p, sizeof h);
  return h;
}
SIMD_INLINE inline void store_halves(void* p, halves h) {
  __builtin_memcpy(p, &h, sizeof h);
}

#endif

// The first n values, zeros after them. Neither AVX2 nor AVX-512F loads some 16-bit lanes.
SIMD_INLINE inline halves load_some_halves(const void* p, int64_t n) {
  uint16_t some[width] = {};
  __builtin_memcpy(some, p, static_cast<unsigned long>(n) * sizeof *some);
  return load_halves(some);
}
SIMD_INLINE inline void store_some_halves(void* p, halves x, int64_t n) {
  uint16_t some[width];
  store_halves(some, x);
  __builtin_memcpy(p, some, static_cast<unsigned long>(n) * sizeof *some);
}

// The functions of vec.hpp, for memory of bf16 and f16.
template <class T>
concept half = __is_same(T, bf16) || __is_same(T, f16);

template <half T>
SIMD_INLINE inline vec load_all(const T* p) {
  return widen(load_halves(p), T{});
}
template <half T>
SIMD_INLINE inline vec load_some(const T* p, int64_t n) {
  return widen(load_some_halves(p, n), T{});
}
template <half T>
SIMD_INLINE inline void store_all(T* p, vec a) {
  store_halves(p, narrow(a, T{}));
}
template <half T>
SIMD_INLINE inline void store_some(T* p, vec a, int64_t n) {
  store_some_halves(p, narrow(a, T{}), n);
}
template <half T>
SIMD_INLINE inline vec load(const T* p, all_lanes) {
  return load_all(p);
}
template <half T>
SIMD_INLINE inline vec load(const T* p, some_lanes k) {
  return load_some(p, k.n);
}
template <half T>
SIMD_INLINE inline void store(T* p, vec a, all_lanes) {
  store_all(p, a);
}
template <half T>
SIMD_INLINE inline void store(T* p, vec a, some_lanes k) {
  store_some(p, a, k.n);
}
// The other lanes read as `rest`.
template <half T>
SIMD_INLINE inline vec load_some_or(const T* p, int64_t n, vec rest) {
  float wide[width];
  store_all(wide, rest);
  store_some(wide, load_some(p, n), n);
  return load_all(wide);
}
template <half T>
SIMD_INLINE inline vec load_or(const T* p, all_lanes, vec) {
  return load_all(p);
}
template <half T>
SIMD_INLINE inline vec load_or(const T* p, some_lanes k, vec rest) {
  return load_some_or(p, k.n, rest);
}

}  // namespace
}  // namespace cpu
