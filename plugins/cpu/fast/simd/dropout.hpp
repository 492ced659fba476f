// SPDX-License-Identifier: Apache-2.0
// Dropout. Sixteen Philox blocks are computed at once; they give the random words of 64 neighbouring elements
// (engine/ops.h has the numbering).
#pragma once

#include "../../../common/simd/vec.hpp"
#include "table.hpp"

namespace cpu {
namespace {

// A register of 32-bit words, as many as a register of floats has lanes.
#if defined(__AVX512F__)

struct words {
  __m512i x;
};
inline words all(uint32_t a) {
  return {_mm512_set1_epi32(int(a))};
}
inline words count_up() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
inline words operator+(words a, words b) {
  return {_mm512_add_epi32(a.x, b.x)};
}
inline words operator^(words a, words b) {
  return {_mm512_xor_si512(a.x, b.x)};
}
// The high and low halves of the 64-bit products a * b: even and odd lanes apart, then merged.
inline void product(words a, words b, words& high, words& low) {
  const __m512i even = _mm512_mul_epu32(a.x, b.x), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.x, 32), b.x);
  high = {_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd)};
  low = {_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32))};
}
// a >= limit ? 1 : 0, unsigned
inline vec one_from(words a, words limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(a.x, limit.x), _mm512_set1_ps(1.0f))};
}

#elif defined(__AVX2__)

struct words {
  __m256i x;
};
inline words all(uint32_t a) {
  return {_mm256_set1_epi32(int(a))};
}
inline words count_up() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)};
}
inline words operator+(words a, words b) {
  return {_mm256_add_epi32(a.x, b.x)};
}
inline words operator^(words a, words b) {
  return {_mm256_xor_si256(a.x, b.x)};
}
inline void product(words a, words b, words& high, words& low) {
  const __m256i even = _mm256_mul_epu32(a.x, b.x), odd = _mm256_mul_epu32(_mm256_srli_epi64(a.x, 32), b.x);
  high = {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA)};
  low = {_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}
inline vec one_from(words a, words limit) {
  const __m256i is = _mm256_cmpeq_epi32(_mm256_max_epu32(a.x, limit.x), a.x);
  return {_mm256_and_ps(_mm256_castsi256_ps(is), _mm256_set1_ps(1.0f))};
}

#else

struct words {
  uint32_t x;
};
inline words all(uint32_t a) {
  return {a};
}
inline words count_up() {
  return {0};
}
inline words operator+(words a, words b) {
  return {a.x + b.x};
}
inline words operator^(words a, words b) {
  return {a.x ^ b.x};
}
inline void product(words a, words b, words& high, words& low) {
  const uint64_t p = uint64_t{a.x} * b.x;
  high = {uint32_t(p >> 32)}, low = {uint32_t(p)};
}
inline vec one_from(words a, words limit) {
  return {a.x >= limit.x ? 1.0f : 0.0f};
}

#endif

// keep[j] = 1 or 0 for element 64 * group + j of a sequence.
SIMD_INLINE inline void keep_group(const dropout_call& d, uint32_t sequence, uint32_t group, float* keep) {
  for (uint32_t first = 0; first < 16; first += uint32_t(width)) {
    words c0 = all(group * 16 + first) + count_up(), c1 = all(sequence), c2 = all(d.step), c3 = all(d.stream);
    uint32_t k0 = uint32_t(d.seed), k1 = uint32_t(d.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      words high_a, low_a, high_b, low_b;
      product(c0, all(0xD2511F53), high_a, low_a);
      product(c2, all(0xCD9E8D57), high_b, low_b);
      c0 = high_b ^ c1 ^ all(k0), c1 = low_b;
      c2 = high_a ^ c3 ^ all(k1), c3 = low_a;
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    const words out[4] = {c0, c1, c2, c3};
    for (int k = 0; k < 4; ++k) store_all(keep + 16 * k + first, one_from(out[k], all(d.threshold)));
  }
}

// Groups of 64 elements, numbered through all sequences.
void dropout(const dropout_call& d, int64_t begin, int64_t end) {
  const int64_t groups = (d.n + 63) / 64;
  const vec scale = splat(d.scale);
  for (int64_t k = begin; k < end; ++k) {
    const int64_t row = k / groups, group = k % groups, left = d.n - 64 * group;
    float keep[64];
    keep_group(d, d.sequence + uint32_t(row), uint32_t(group), keep);
    const float *const x = d.x + row * d.n + 64 * group, *const kept = keep;
    float* const y = d.y + row * d.n + 64 * group;
    for_lanes(left < 64 ? left : 64, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(y + i, if_positive(load(kept + i, lanes), load(x + i, lanes) * scale, splat(0.0f)), lanes);
    });
  }
}

}  // namespace
}  // namespace cpu
