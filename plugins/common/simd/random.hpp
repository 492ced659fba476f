// SPDX-License-Identifier: Apache-2.0
// Random numbers of vector kernels: Philox 4x32-10 (Salmon et al. 2011) in as many lanes as a register of floats has,
// and stochastic rounding to bf16 (engine/ops.h has the numbering). plugins/common/philox.hpp is the same one by one.
#pragma once

#include "half.hpp"

namespace cpu {
namespace {

// A register of 32-bit words, as many as a register of floats has lanes. narrow_by(a, r): a + r units in the last place
// of f32, cut off to bf16; a NaN becomes a quiet one.
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
inline words load_words(const uint32_t* p) {
  return {_mm512_loadu_si512(p)};
}
inline void store_words(uint32_t* p, words a) {
  _mm512_storeu_si512(p, a.x);
}
inline words operator+(words a, words b) {
  return {_mm512_add_epi32(a.x, b.x)};
}
inline words operator^(words a, words b) {
  return {_mm512_xor_si512(a.x, b.x)};
}
inline words low_half(words a) {
  return {_mm512_and_si512(a.x, _mm512_set1_epi32(0xffff))};
}
inline words high_half(words a) {
  return {_mm512_srli_epi32(a.x, 16)};
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
SIMD_INLINE inline halves narrow_by(vec a, words r) {
  const __m512i bits = _mm512_castps_si512(a.x), up = _mm512_srli_epi32(_mm512_add_epi32(bits, r.x), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.x, a.x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(up, nan, _mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40)));
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
inline words load_words(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
inline void store_words(uint32_t* p, words a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.x);
}
inline words operator+(words a, words b) {
  return {_mm256_add_epi32(a.x, b.x)};
}
inline words operator^(words a, words b) {
  return {_mm256_xor_si256(a.x, b.x)};
}
inline words low_half(words a) {
  return {_mm256_and_si256(a.x, _mm256_set1_epi32(0xffff))};
}
inline words high_half(words a) {
  return {_mm256_srli_epi32(a.x, 16)};
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
SIMD_INLINE inline halves narrow_by(vec a, words r) {
  const __m256i bits = _mm256_castps_si256(a.x), up = _mm256_srli_epi32(_mm256_add_epi32(bits, r.x), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.x, a.x, _CMP_UNORD_Q));
  const __m256i out = _mm256_blendv_epi8(up, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
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
inline words load_words(const uint32_t* p) {
  return {*p};
}
inline void store_words(uint32_t* p, words a) {
  *p = a.x;
}
inline words operator+(words a, words b) {
  return {a.x + b.x};
}
inline words operator^(words a, words b) {
  return {a.x ^ b.x};
}
inline words low_half(words a) {
  return {a.x & 0xffff};
}
inline words high_half(words a) {
  return {a.x >> 16};
}
inline void product(words a, words b, words& high, words& low) {
  const uint64_t p = uint64_t{a.x} * b.x;
  high = {uint32_t(p >> 32)}, low = {uint32_t(p)};
}
inline vec one_from(words a, words limit) {
  return {a.x >= limit.x ? 1.0f : 0.0f};
}
SIMD_INLINE inline halves narrow_by(vec a, words r) {
  const uint32_t bits = bits_of(a.x);
  return {{static_cast<uint16_t>(a.x != a.x ? bits >> 16 | 0x40 : (bits + r.x) >> 16)}};
}

#endif

// The ten rounds on counters c0 .. c3, which become the random words.
SIMD_INLINE inline void philox(words& c0, words& c1, words& c2, words& c3, uint64_t seed) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    words high_a, low_a, high_b, low_b;
    product(c0, all(0xD2511F53), high_a, low_a);
    product(c2, all(0xCD9E8D57), high_b, low_b);
    c0 = high_b ^ c1 ^ all(k0), c1 = low_b;
    c2 = high_a ^ c3 ^ all(k1), c3 = low_a;
    k0 += 0x9E3779B9, k1 += 0xBB67AE85;
  }
}

// Random numbers that are added to 32 neighbouring elements, from element `first` of a parameter on, before they are
// cut off: r[k] for the k-th value that an update stores.
constexpr int64_t rounding_group = 32;
SIMD_INLINE inline void rounding_words(const rounding_key& key, int64_t first, uint32_t (&r)[3][rounding_group]) {
  const uint64_t block = uint64_t(first) / 2;
  for (int64_t lane = 0; lane < 16; lane += width) {
    words c[4] = {all(uint32_t(block) + uint32_t(lane)) + count_up(), all(uint32_t(block >> 32)), all(key.update),
                  all(key.stream | 0x80000000u)};
    philox(c[0], c[1], c[2], c[3], key.seed);
    for (int k = 0; k < 3; ++k)
      store_words(r[k] + lane, low_half(c[k])), store_words(r[k] + 16 + lane, high_half(c[k]));
  }
}

SIMD_INLINE inline void store_by(bf16* p, vec a, const uint32_t* r, all_lanes) {
  store_halves(p, narrow_by(a, load_words(r)));
}
SIMD_INLINE inline void store_by(bf16* p, vec a, const uint32_t* r, some_lanes k) {
  store_some_halves(p, narrow_by(a, load_words(r)), k.n);
}

}  // namespace
}  // namespace cpu
