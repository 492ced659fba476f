// SPDX-License-Identifier: Apache-2.0
// A register of floats, as wide as the file that includes this was compiled for: 16 (AVX-512), 8 (AVX2) or 1.
//
// Everything is in an anonymous namespace and only headers without inline functions of their own are
// included: a function compiled here for AVX-512 must never be the copy that the linker keeps for all.
#pragma once

#include <stdint.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define SIMD_INLINE __attribute__((always_inline))

namespace cpu {
namespace {

#if defined(__AVX512F__)

constexpr int64_t width = 16;
struct vec {
  __m512 x;
};
inline vec splat(float a) {
  return {_mm512_set1_ps(a)};
}
inline vec operator+(vec a, vec b) {
  return {_mm512_add_ps(a.x, b.x)};
}
inline vec operator-(vec a, vec b) {
  return {_mm512_sub_ps(a.x, b.x)};
}
inline vec operator*(vec a, vec b) {
  return {_mm512_mul_ps(a.x, b.x)};
}
inline vec operator/(vec a, vec b) {
  return {_mm512_div_ps(a.x, b.x)};
}
inline vec fma(vec a, vec b, vec c) {
  return {_mm512_fmadd_ps(a.x, b.x, c.x)};
}
inline vec fms(vec a, vec b, vec c) {
  return {_mm512_fmsub_ps(a.x, b.x, c.x)};
}
inline vec sqrt(vec a) {
  return {_mm512_sqrt_ps(a.x)};
}
// A NaN in b is kept, one in a is not.
inline vec min(vec a, vec b) {
  return {_mm512_min_ps(a.x, b.x)};
}
inline vec max(vec a, vec b) {
  return {_mm512_max_ps(a.x, b.x)};
}
inline vec abs(vec a) {
  return {_mm512_abs_ps(a.x)};
}
// c > 0 ? a : b
inline vec if_positive(vec c, vec a, vec b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(c.x, _mm512_setzero_ps(), _CMP_GT_OQ), b.x, a.x)};
}
// a * 2^n, n a whole number within +-300, rounded once.
inline vec scale2(vec a, vec n) {
  return {_mm512_scalef_ps(a.x, n.x)};
}
inline vec load_all(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline void store_all(float* p, vec a) {
  _mm512_storeu_ps(p, a.x);
}
inline __mmask16 first(int64_t n) {
  return __mmask16((1u << n) - 1u);
}
inline vec load_some(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(first(n), p)};
}
inline vec load_some_or(const float* p, int64_t n, vec rest) {
  return {_mm512_mask_loadu_ps(rest.x, first(n), p)};
}
inline void store_some(float* p, vec a, int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), a.x);
}
inline float sum(vec a) {
  const __m256 h =
      _mm256_add_ps(_mm512_castps512_ps256(a.x), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.x), 1)));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

#elif defined(__AVX2__)

constexpr int64_t width = 8;
struct vec {
  __m256 x;
};
inline vec splat(float a) {
  return {_mm256_set1_ps(a)};
}
inline vec operator+(vec a, vec b) {
  return {_mm256_add_ps(a.x, b.x)};
}
inline vec operator-(vec a, vec b) {
  return {_mm256_sub_ps(a.x, b.x)};
}
inline vec operator*(vec a, vec b) {
  return {_mm256_mul_ps(a.x, b.x)};
}
inline vec operator/(vec a, vec b) {
  return {_mm256_div_ps(a.x, b.x)};
}
inline vec fma(vec a, vec b, vec c) {
  return {_mm256_fmadd_ps(a.x, b.x, c.x)};
}
inline vec fms(vec a, vec b, vec c) {
  return {_mm256_fmsub_ps(a.x, b.x, c.x)};
}
inline vec sqrt(vec a) {
  return {_mm256_sqrt_ps(a.x)};
}
inline vec min(vec a, vec b) {
  return {_mm256_min_ps(a.x, b.x)};
}
inline vec max(vec a, vec b) {
  return {_mm256_max_ps(a.x, b.x)};
}
inline vec abs(vec a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.x)};
}
inline vec if_positive(vec c, vec a, vec b) {
  return {_mm256_blendv_ps(b.x, a.x, _mm256_cmp_ps(c.x, _mm256_setzero_ps(), _CMP_GT_OQ))};
}
inline __m256 power2(__m256i n) {  // 2^n, n in -126 .. 127
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// Two factors, the first always exact: a result among the denormals is rounded once.
inline vec scale2(vec a, vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.x), half = _mm256_srai_epi32(whole, 1);
  return {_mm256_mul_ps(_mm256_mul_ps(a.x, power2(half)), power2(_mm256_sub_epi32(whole, half)))};
}
inline vec load_all(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store_all(float* p, vec a) {
  _mm256_storeu_ps(p, a.x);
}
inline __m256i first(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int32_t(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline vec load_some(const float* p, int64_t n) {
  return {_mm256_maskload_ps(p, first(n))};
}
inline vec load_some_or(const float* p, int64_t n, vec rest) {
  return {_mm256_blendv_ps(rest.x, load_some(p, n).x, _mm256_castsi256_ps(first(n)))};
}
inline void store_some(float* p, vec a, int64_t n) {
  _mm256_maskstore_ps(p, first(n), a.x);
}
inline float sum(vec a) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

#else

constexpr int64_t width = 1;
struct vec {
  float x;
};
inline vec splat(float a) {
  return {a};
}
inline vec operator+(vec a, vec b) {
  return {a.x + b.x};
}
inline vec operator-(vec a, vec b) {
  return {a.x - b.x};
}
inline vec operator*(vec a, vec b) {
  return {a.x * b.x};
}
inline vec operator/(vec a, vec b) {
  return {a.x / b.x};
}
inline vec fma(vec a, vec b, vec c) {
  return {__builtin_fmaf(a.x, b.x, c.x)};
}
inline vec fms(vec a, vec b, vec c) {
  return {__builtin_fmaf(a.x, b.x, -c.x)};
}
inline vec sqrt(vec a) {
  return {__builtin_sqrtf(a.x)};
}
inline vec min(vec a, vec b) {
  return {a.x < b.x ? a.x : b.x};
}
inline vec max(vec a, vec b) {
  return {a.x > b.x ? a.x : b.x};
}
inline vec abs(vec a) {
  return {__builtin_fabsf(a.x)};
}
inline vec if_positive(vec c, vec a, vec b) {
  return {c.x > 0.0f ? a.x : b.x};
}
inline float power2(int32_t n) {
  const int32_t bits = (n + 127) << 23;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}
inline vec scale2(vec a, vec n) {
  if (!(n.x >= -300.0f && n.x <= 300.0f)) return a;  // a NaN: the product would be one as well
  const int32_t whole = int32_t(n.x), half = whole / 2;
  return {a.x * power2(half) * power2(whole - half)};
}
inline vec load_all(const float* p) {
  return {*p};
}
inline void store_all(float* p, vec a) {
  *p = a.x;
}
inline vec load_some(const float* p, int64_t) {
  return {*p};
}
inline vec load_some_or(const float* p, int64_t, vec) {
  return {*p};
}
inline void store_some(float* p, vec a, int64_t) {
  *p = a.x;
}
inline float sum(vec a) {
  return a.x;
}

#endif

// Which lanes of a register are used: all, or the first n. The other lanes read as zero and are not written.
struct all_lanes {};
struct some_lanes {
  int64_t n;
};
inline vec load(const float* p, all_lanes) {
  return load_all(p);
}
inline vec load(const float* p, some_lanes k) {
  return load_some(p, k.n);
}
// The other lanes read as `rest`.
inline vec load_or(const float* p, all_lanes, vec) {
  return load_all(p);
}
inline vec load_or(const float* p, some_lanes k, vec rest) {
  return load_some_or(p, k.n, rest);
}
inline void store(float* p, vec a, all_lanes) {
  store_all(p, a);
}
inline void store(float* p, vec a, some_lanes k) {
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
