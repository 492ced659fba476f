// SPDX-License-Identifier: Apache-2.0
// A register of floats, as wide as the file that includes this was compiled for: 16 (AVX-512), 8 (AVX2) or 1. This is
// the only file of the plugins with vector instructions that other files build on.
//
// Other processors have one of two kinds. By default a register is one float, and fma is fused, as with AVX. A file
// that defines SIMD_PORTABLE_FOUR gets four floats, and fma is a multiplication and an addition: fused it would be a
// call of the C library for each float.
//
// Everything is in an anonymous namespace and only headers without inline functions of their own are
// included: a function compiled here for AVX-512 must never be the copy that the linker keeps for all.
#pragma once

#include <stdint.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

// All functions are inlined, so that no call is left in an unrolled loop.
#define SIMD_INLINE __attribute__((always_inline))

namespace cpu {
namespace {

#if defined(__AVX512F__)

constexpr int64_t width = 16;
struct vec {
  __m512 x;
};
SIMD_INLINE inline vec splat(float a) {
  return {_mm512_set1_ps(a)};
}
SIMD_INLINE inline vec operator+(vec a, vec b) {
  return {_mm512_add_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator-(vec a, vec b) {
  return {_mm512_sub_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator*(vec a, vec b) {
  return {_mm512_mul_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator/(vec a, vec b) {
  return {_mm512_div_ps(a.x, b.x)};
}
SIMD_INLINE inline vec fma(vec a, vec b, vec c) {
  return {_mm512_fmadd_ps(a.x, b.x, c.x)};
}
SIMD_INLINE inline vec fms(vec a, vec b, vec c) {
  return {_mm512_fmsub_ps(a.x, b.x, c.x)};
}
SIMD_INLINE inline vec sqrt(vec a) {
  return {_mm512_sqrt_ps(a.x)};
}
// A NaN in b is kept, one in a is not.
SIMD_INLINE inline vec min(vec a, vec b) {
  return {_mm512_min_ps(a.x, b.x)};
}
SIMD_INLINE inline vec max(vec a, vec b) {
  return {_mm512_max_ps(a.x, b.x)};
}
SIMD_INLINE inline vec abs(vec a) {
  return {_mm512_abs_ps(a.x)};
}
// c > 0 ? a : b
SIMD_INLINE inline vec if_positive(vec c, vec a, vec b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(c.x, _mm512_setzero_ps(), _CMP_GT_OQ), b.x, a.x)};
}
// a * 2^n, n a whole number within +-300, rounded once.
SIMD_INLINE inline vec scale2(vec a, vec n) {
  return {_mm512_scalef_ps(a.x, n.x)};
}
// To the nearest whole number, ties to even; no exception.
SIMD_INLINE inline vec round(vec a) {
  return {_mm512_roundscale_ps(a.x, 8)};
}
// a * 2^n for whole n in -126 .. 127.
SIMD_INLINE inline vec scale2_normal(vec a, vec n) {
  return {_mm512_scalef_ps(a.x, n.x)};
}
// v where x >= limit or x is NaN, else 0.
SIMD_INLINE inline vec zero_below(vec x, vec limit, vec v) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.x, limit.x, _CMP_NLT_UQ), v.x)};
}
SIMD_INLINE inline vec load_all(const float* p) {
  return {_mm512_loadu_ps(p)};
}
SIMD_INLINE inline void store_all(float* p, vec a) {
  _mm512_storeu_ps(p, a.x);
}
SIMD_INLINE inline __mmask16 first(int64_t n) {
  return __mmask16((1u << n) - 1u);
}
SIMD_INLINE inline vec load_some(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(first(n), p)};
}
SIMD_INLINE inline vec load_some_or(const float* p, int64_t n, vec rest) {
  return {_mm512_mask_loadu_ps(rest.x, first(n), p)};
}
SIMD_INLINE inline void store_some(float* p, vec a, int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), a.x);
}
SIMD_INLINE inline float sum(vec a) {
  const __m256 h =
      _mm256_add_ps(_mm512_castps512_ps256(a.x), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.x), 1)));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
SIMD_INLINE inline float largest(vec a) {
  return _mm512_reduce_max_ps(a.x);
}

#elif defined(__AVX2__)

constexpr int64_t width = 8;
struct vec {
  __m256 x;
};
SIMD_INLINE inline vec splat(float a) {
  return {_mm256_set1_ps(a)};
}
SIMD_INLINE inline vec operator+(vec a, vec b) {
  return {_mm256_add_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator-(vec a, vec b) {
  return {_mm256_sub_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator*(vec a, vec b) {
  return {_mm256_mul_ps(a.x, b.x)};
}
SIMD_INLINE inline vec operator/(vec a, vec b) {
  return {_mm256_div_ps(a.x, b.x)};
}
SIMD_INLINE inline vec fma(vec a, vec b, vec c) {
  return {_mm256_fmadd_ps(a.x, b.x, c.x)};
}
SIMD_INLINE inline vec fms(vec a, vec b, vec c) {
  return {_mm256_fmsub_ps(a.x, b.x, c.x)};
}
SIMD_INLINE inline vec sqrt(vec a) {
  return {_mm256_sqrt_ps(a.x)};
}
SIMD_INLINE inline vec min(vec a, vec b) {
  return {_mm256_min_ps(a.x, b.x)};
}
SIMD_INLINE inline vec max(vec a, vec b) {
  return {_mm256_max_ps(a.x, b.x)};
}
SIMD_INLINE inline vec abs(vec a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.x)};
}
SIMD_INLINE inline vec if_positive(vec c, vec a, vec b) {
  return {_mm256_blendv_ps(b.x, a.x, _mm256_cmp_ps(c.x, _mm256_setzero_ps(), _CMP_GT_OQ))};
}
SIMD_INLINE inline __m256 power2(__m256i n) {  // 2^n, n in -126 .. 127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// Two factors, the first always exact: a result among the denormals is rounded once.
SIMD_INLINE inline vec scale2(vec a, vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.x), half = _mm256_srai_epi32(whole, 1);
  return {_mm256_mul_ps(_mm256_mul_ps(a.x, power2(half)), power2(_mm256_sub_epi32(whole, half)))};
}
SIMD_INLINE inline vec round(vec a) {
  return {_mm256_round_ps(a.x, 8)};
}
SIMD_INLINE inline vec scale2_normal(vec a, vec n) {
  return {_mm256_mul_ps(a.x, power2(_mm256_cvtps_epi32(n.x)))};
}
SIMD_INLINE inline vec zero_below(vec x, vec limit, vec v) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.x, limit.x, _CMP_NLT_UQ), v.x)};
}
SIMD_INLINE inline vec load_all(const float* p) {
  return {_mm256_loadu_ps(p)};
}
SIMD_INLINE inline void store_all(float* p, vec a) {
  _mm256_storeu_ps(p, a.x);
}
SIMD_INLINE inline __m256i first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int32_t(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE inline vec load_some(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, first(n))};
}
SIMD_INLINE inline vec load_some_or(const float* p, int64_t n, vec rest) {
  return {_mm256_blendv_ps(rest.x, load_some(p, n).x, _mm256_castsi256_ps(first(n)))};
}
SIMD_INLINE inline void store_some(float* p, vec a, int64_t n) {
  _mm256_maskstore_ps(p, first(n), a.x);
}
SIMD_INLINE inline float sum(vec a) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
SIMD_INLINE inline float largest(vec a) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

#elif defined(SIMD_PORTABLE_FOUR)

constexpr int64_t width = 4;
struct vec {
  typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t whole __attribute__((vector_size(16)));
  four x;
};
SIMD_INLINE inline vec splat(float a) {
  return {vec::four{a, a, a, a}};
}
SIMD_INLINE inline vec operator+(vec a, vec b) {
  return {a.x + b.x};
}
SIMD_INLINE inline vec operator-(vec a, vec b) {
  return {a.x - b.x};
}
SIMD_INLINE inline vec operator*(vec a, vec b) {
  return {a.x * b.x};
}
SIMD_INLINE inline vec fma(vec a, vec b, vec c) {
  return {a.x * b.x + c.x};
}
SIMD_INLINE inline vec operator/(vec a, vec b) {
  return {a.x / b.x};
}
SIMD_INLINE inline vec min(vec a, vec b) {
  return {a.x < b.x ? a.x : b.x};
}
SIMD_INLINE inline vec max(vec a, vec b) {
  return {a.x > b.x ? a.x : b.x};
}
// |a| < 2^22: adding and subtracting 1.5 * 2^23 leaves the nearest whole number.
SIMD_INLINE inline vec round(vec a) {
  return (a + splat(12582912.0f)) - splat(12582912.0f);
}
SIMD_INLINE inline vec scale2_normal(vec a, vec n) {
  return {a.x * reinterpret_cast<vec::four>((__builtin_convertvector(n.x, vec::whole) + 127) << 23)};
}
SIMD_INLINE inline vec zero_below(vec x, vec limit, vec v) {
  return {x.x < limit.x ? splat(0.0f).x : v.x};
}
SIMD_INLINE inline vec load_all(const float* p) {
  return {*reinterpret_cast<const vec::four*>(p)};
}
SIMD_INLINE inline void store_all(float* p, vec a) {
  *reinterpret_cast<vec::four*>(p) = a.x;
}
SIMD_INLINE inline vec load_some_or(const float* p, int64_t n, vec rest) {
  for (int64_t k = 0; k < n; ++k) rest.x[k] = p[k];
  return rest;
}
SIMD_INLINE inline vec load_some(const float* p, int64_t n) {
  return load_some_or(p, n, splat(0.0f));
}
SIMD_INLINE inline void store_some(float* p, vec a, int64_t n) {
  for (int64_t k = 0; k < n; ++k) p[k] = a.x[k];
}
SIMD_INLINE inline float sum(vec a) {
  return (a.x[0] + a.x[2]) + (a.x[1] + a.x[3]);
}
SIMD_INLINE inline float largest(vec a) {
  const float b = a.x[0] > a.x[2] ? a.x[0] : a.x[2], c = a.x[1] > a.x[3] ? a.x[1] : a.x[3];
  return b > c ? b : c;
}

#else

constexpr int64_t width = 1;
struct vec {
  float x;
};
SIMD_INLINE inline vec splat(float a) {
  return {a};
}
SIMD_INLINE inline vec operator+(vec a, vec b) {
  return {a.x + b.x};
}
SIMD_INLINE inline vec operator-(vec a, vec b) {
  return {a.x - b.x};
}
SIMD_INLINE inline vec operator*(vec a, vec b) {
  return {a.x * b.x};
}
SIMD_INLINE inline vec operator/(vec a, vec b) {
  return {a.x / b.x};
}
SIMD_INLINE inline vec fma(vec a, vec b, vec c) {
  return {__builtin_fmaf(a.x, b.x, c.x)};
}
SIMD_INLINE inline vec fms(vec a, vec b, vec c) {
  return {__builtin_fmaf(a.x, b.x, -c.x)};
}
SIMD_INLINE inline vec sqrt(vec a) {
  return {__builtin_sqrtf(a.x)};
}
SIMD_INLINE inline vec min(vec a, vec b) {
  return {a.x < b.x ? a.x : b.x};
}
SIMD_INLINE inline vec max(vec a, vec b) {
  return {a.x > b.x ? a.x : b.x};
}
SIMD_INLINE inline vec abs(vec a) {
  return {__builtin_fabsf(a.x)};
}
SIMD_INLINE inline vec if_positive(vec c, vec a, vec b) {
  return {c.x > 0.0f ? a.x : b.x};
}
SIMD_INLINE inline float power2(int32_t n) {
  const int32_t bits = (n + 127) << 23;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}
SIMD_INLINE inline vec scale2(vec a, vec n) {
  if (!(n.x >= -300.0f && n.x <= 300.0f)) return a;  // a NaN: the product would be one as well
  const int32_t whole = int32_t(n.x), half = whole / 2;
  return {a.x * power2(half) * power2(whole - half)};
}
SIMD_INLINE inline vec load_all(const float* p) {
  return {*p};
}
SIMD_INLINE inline void store_all(float* p, vec a) {
  *p = a.x;
}
SIMD_INLINE inline vec load_some(const float* p, int64_t) {
  return {*p};
}
SIMD_INLINE inline vec load_some_or(const float* p, int64_t, vec) {
  return {*p};
}
SIMD_INLINE inline void store_some(float* p, vec a, int64_t) {
  *p = a.x;
}
SIMD_INLINE inline float sum(vec a) {
  return a.x;
}

#endif

// The lanes of a register that are used: all, or the first n. The other lanes read as zero and are not written.
struct all_lanes {};
struct some_lanes {
  int64_t n;
};
SIMD_INLINE inline vec load(const float* p, all_lanes) {
  return load_all(p);
}
SIMD_INLINE inline vec load(const float* p, some_lanes k) {
  return load_some(p, k.n);
}
// The other lanes read as `rest`.
SIMD_INLINE inline vec load_or(const float* p, all_lanes, vec) {
  return load_all(p);
}
SIMD_INLINE inline vec load_or(const float* p, some_lanes k, vec rest) {
  return load_some_or(p, k.n, rest);
}
SIMD_INLINE inline void store(float* p, vec a, all_lanes) {
  store_all(p, a);
}
SIMD_INLINE inline void store(float* p, vec a, some_lanes k) {
  store_some(p, a, k.n);
}

// body(i, lanes) for i = 0, width, ... over n elements. Each element gets the same operations in a whole
// register and in the last, partial one, so a result never depends on where a range was cut.
template <class Body>
SIMD_INLINE inline void for_lanes(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + width <= n; i += width) body(i, all_lanes{});
  if (i < n) body(i, some_lanes{n - i});
}

}  // namespace
}  // namespace cpu
