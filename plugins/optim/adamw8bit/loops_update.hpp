// SPDX-License-Identifier: Apache-2.0
// The loop, for a register of the width that the file which includes this is compiled for.
#pragma once

#include "../../common/simd/half.hpp"
#include "loops.hpp"

namespace adamw8bit {
namespace {

using cpu::vec;
using cpu::width;

constexpr int64_t size = 256;  // of a block

// Integers, one for each float of a register.
#if defined(__AVX2__)

struct whole {
  __m256i x;
};
SIMD_INLINE inline whole all(int32_t a) {
  return {_mm256_set1_epi32(a)};
}
SIMD_INLINE inline whole bits_of(vec a) {
  return {_mm256_castps_si256(a.x)};
}
SIMD_INLINE inline whole operator&(whole a, whole b) {
  return {_mm256_and_si256(a.x, b.x)};
}
SIMD_INLINE inline whole operator|(whole a, whole b) {
  return {_mm256_or_si256(a.x, b.x)};
}
SIMD_INLINE inline whole operator+(whole a, whole b) {
  return {_mm256_add_epi32(a.x, b.x)};
}
SIMD_INLINE inline whole operator-(whole a, whole b) {
  return {_mm256_sub_epi32(a.x, b.x)};
}
SIMD_INLINE inline whole shifted(whole a, int by) {
  return {_mm256_srli_epi32(a.x, by)};
}
SIMD_INLINE inline whole larger(whole a, whole b) {
  return {_mm256_max_epi32(a.x, b.x)};
}
SIMD_INLINE inline whole smaller(whole a, whole b) {
  return {_mm256_min_epi32(a.x, b.x)};
}
// All bits where a > b, otherwise none.
SIMD_INLINE inline whole above(whole a, whole b) {
  return {_mm256_cmpgt_epi32(a.x, b.x)};
}
SIMD_INLINE inline whole look_up(const uint32_t* table, whole at) {
  return {_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), at.x, 4)};
}
SIMD_INLINE inline vec look_up(const float* table, const uint8_t* bytes) {
  const __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  return {_mm256_i32gather_ps(table, at, 4)};
}
SIMD_INLINE inline void store_bytes(uint8_t* bytes, whole a) {
  const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(a.x), _mm256_extracti128_si256(a.x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(pairs, pairs));
}
SIMD_INLINE inline int32_t largest(whole a) {
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(a.x), _mm256_extracti128_si256(a.x, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

#else

struct whole {
  int32_t x;
};
SIMD_INLINE inline whole all(int32_t a) {
  return {a};
}
SIMD_INLINE inline whole bits_of(vec a) {
  whole b;
  __builtin_memcpy(&b, &a, sizeof b);
  return b;
}
SIMD_INLINE inline whole operator&(whole a, whole b) {
  return {a.x & b.x};
}
SIMD_INLINE inline whole operator|(whole a, whole b) {
  return {a.x | b.x};
}
SIMD_INLINE inline whole operator+(whole a, whole b) {
  return {a.x + b.x};
}
SIMD_INLINE inline whole operator-(whole a, whole b) {
  return {a.x - b.x};
}
SIMD_INLINE inline whole shifted(whole a, int by) {
  return {static_cast<int32_t>(static_cast<uint32_t>(a.x) >> by)};
}
SIMD_INLINE inline whole larger(whole a, whole b) {
  return {a.x > b.x ? a.x : b.x};
}
SIMD_INLINE inline whole smaller(whole a, whole b) {
  return {a.x < b.x ? a.x : b.x};
}
SIMD_INLINE inline whole above(whole a, whole b) {
  return {a.x > b.x ? -1 : 0};
}
SIMD_INLINE inline whole look_up(const uint32_t* table, whole at) {
  return {static_cast<int32_t>(table[at.x])};
}
SIMD_INLINE inline vec look_up(const float* table, const uint8_t* bytes) {
  return {table[*bytes]};
}
SIMD_INLINE inline void store_bytes(uint8_t* bytes, whole a) {
  *bytes = static_cast<uint8_t>(a.x);
}
SIMD_INLINE inline int32_t largest(whole a) {
  return a.x;
}

#endif

constexpr int32_t no_sign = 0x7fffffff, infinity = 0x7f800000, nan = 0x7fc00000;

// The scale of a block of which the largest magnitude has these bits. As integers they are ordered like the numbers,
// and NaN is above all.
SIMD_INLINE inline float scale_of(int32_t bits) {
  const int32_t kept = bits < infinity ? bits : nan;
  float scale;
  __builtin_memcpy(&scale, &kept, sizeof scale);
  return scale;
}

// The level of x in 0 .. 1.
SIMD_INLINE inline whole level_of(const Codes& c, vec x) {
  const whole bits = bits_of(x), first = all(c.first), high = larger(shifted(bits, bucket_shift), first);
  const whole entry = look_up(c.bucket, high - first), low = bits & all((1 << bucket_shift) - 1);
  const whole from = entry & all((1 << from_bits) - 1);
  return shifted(entry, from_bits) + (above(low + all(1), from) & all(1));
}

// Bytes of a block of m from its values; each is at most `scale`, which is finite and above 0.
SIMD_INLINE inline void pack_m(const float* m, float scale, uint8_t* bytes) {
  const vec by = cpu::splat(scale);
  for (int64_t i = 0; i < size; i += width) {
    const vec value = cpu::load_all(m + i);
    const whole level = level_of(m_codes, cpu::abs(value) / by), less = smaller(level, all(127));
    const whole negative = above(all(0), bits_of(value)), below = less | (above(less, all(0)) & all(128));
    store_bytes(bytes + i, level + (negative & (below - level)));  // `below` where m is negative
  }
}
SIMD_INLINE inline void pack_v(const float* v, float scale, uint8_t* bytes) {
  const vec by = cpu::splat(scale);
  for (int64_t i = 0; i < size; i += width) {
    const vec value = cpu::abs(cpu::load_all(v + i));
    const whole some = above(bits_of(value), all(0)) & all(1);
    const whole level = larger(level_of(v_codes, value / by), some), code = level + some;  // 1 .. 255 are 2 .. 256
    store_bytes(bytes + i, (code & all(255)) | shifted(code, 8));
  }
}

// One block at its first element.
template <bool decay, class T>
SIMD_INLINE inline void update_block(const Update& u, int64_t at, float* m_scale, float* v_scale, T* weight) {
  float m_new[size], v_new[size];
  float* const p = u.p + at;
  const float* const grad = u.grad + at;
  uint8_t *const m_bytes = u.m + at, *const v_bytes = u.v + at;
  const vec clip = cpu::splat(u.clip), rest1 = cpu::splat(u.rest1), beta2 = cpu::splat(u.beta2);
  const vec rest2 = cpu::splat(u.rest2), lr = cpu::splat(u.lr), c1 = cpu::splat(u.c1), c2 = cpu::splat(u.c2);
  const vec eps = cpu::splat(u.eps), wd = cpu::splat(u.wd);
  const vec m_by = cpu::splat(*m_scale), v_by = cpu::splat(*v_scale);
  whole m_most = all(0), v_most = all(0);
  for (int64_t i = 0; i < size; i += width) {
    const vec g = cpu::load_all(grad + i) * clip;
    vec m = look_up(m_codes.value, m_bytes + i) * m_by, v = look_up(v_codes.value, v_bytes + i) * v_by;
    vec x = cpu::load_all(p + i);
    m = cpu::fma(rest1, g - m, m);
    v = cpu::fma(beta2, v, rest2 * (g * g));
    if (decay) x = x - lr * (wd * x);
    x = x - (lr * m / c1) / (cpu::sqrt(v) / c2 + eps);
    cpu::store_all(m_new + i, m);
    cpu::store_all(v_new + i, v);
    cpu::store_all(p + i, x);
    if constexpr (cpu::half<T>) cpu::store_all(weight + at + i, x);
    m_most = larger(m_most, bits_of(m) & all(no_sign));
    v_most = larger(v_most, bits_of(v) & all(no_sign));
  }
  *m_scale = scale_of(largest(m_most));
  *v_scale = scale_of(largest(v_most));
  if (*m_scale > 0.0f)
    pack_m(m_new, *m_scale, m_bytes);
  else
    __builtin_memset(m_bytes, 0, size);
  if (*v_scale > 0.0f)
    pack_v(v_new, *v_scale, v_bytes);
  else
    __builtin_memset(v_bytes, 0, size);
}

template <class T>
void update_blocks(const Update& u, int64_t first, int64_t last) {
  T* const weight = static_cast<T*>(u.weight);
  for (int64_t b = first; b < last; ++b)
    if (u.wd != 0.0f)
      update_block<true>(u, b * size, u.m_scales + b, u.v_scales + b, weight);
    else
      update_block<false>(u, b * size, u.m_scales + b, u.v_scales + b, weight);
}

void update(const Update& u, int64_t first, int64_t last) {
  if (!u.weight)
    update_blocks<float>(u, first, last);
  else if (u.bf16)
    update_blocks<cpu::bf16>(u, first, last);
  else
    update_blocks<cpu::f16>(u, first, last);
}

}  // namespace
}  // namespace adamw8bit
