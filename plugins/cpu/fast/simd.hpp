// SPDX-License-Identifier: Apache-2.0
// Vectors of floats in the instruction set this file is compiled for. Everything lives in a namespace of that
// instruction set (CPU_ISA, given by the build): the linker must never take one set's function for another's.
// For the same reason nothing here uses templates or inline functions of the standard library.
#pragma once

#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#ifdef __clang__
#define CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLL _Pragma("GCC unroll 64")
#endif
#define CPU_INLINE inline __attribute__((always_inline))

namespace cpu::CPU_ISA {

#if defined(__AVX512F__)

using V = __m512;
inline constexpr int W = 16;
inline constexpr int most_columns = 4;  // vectors per row of a register tile

CPU_INLINE V load(const float* p) {
  return _mm512_loadu_ps(p);
}
CPU_INLINE void store(float* p, V v) {
  _mm512_storeu_ps(p, v);
}
CPU_INLINE V set1(float x) {
  return _mm512_set1_ps(x);
}
CPU_INLINE V add(V a, V b) {
  return _mm512_add_ps(a, b);
}
CPU_INLINE V sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
CPU_INLINE V mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
CPU_INLINE V max(V a, V b) {
  return _mm512_max_ps(a, b);
}
CPU_INLINE V fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
CPU_INLINE V round(V a) {
  return _mm512_roundscale_ps(a, 8);
}  // to nearest even, no exception
CPU_INLINE V power2(V a, V n) {
  return _mm512_scalef_ps(a, n);
}  // a * 2^n
// v where x >= limit or x is NaN, else 0.
CPU_INLINE V zero_below(V x, V limit, V v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}
CPU_INLINE float sum_lanes(V v) {
  return _mm512_reduce_add_ps(v);
}
CPU_INLINE float max_lanes(V v) {
  return _mm512_reduce_max_ps(v);
}
// The first n lanes of p, the others `rest`; n in 0 .. W.
CPU_INLINE V load_some(const float* p, int n, V rest) {
  return _mm512_mask_loadu_ps(rest, static_cast<__mmask16>((1U << n) - 1U), p);
}
CPU_INLINE void store_some(float* p, int n, V v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1U), v);
}

#elif defined(__AVX2__)

using V = __m256;
inline constexpr int W = 8;
inline constexpr int most_columns = 2;

CPU_INLINE V load(const float* p) {
  return _mm256_loadu_ps(p);
}
CPU_INLINE void store(float* p, V v) {
  _mm256_storeu_ps(p, v);
}
CPU_INLINE V set1(float x) {
  return _mm256_set1_ps(x);
}
CPU_INLINE V add(V a, V b) {
  return _mm256_add_ps(a, b);
}
CPU_INLINE V sub(V a, V b) {
  return _mm256_sub_ps(a, b);
}
CPU_INLINE V mul(V a, V b) {
  return _mm256_mul_ps(a, b);
}
CPU_INLINE V max(V a, V b) {
  return _mm256_max_ps(a, b);
}
CPU_INLINE V fma(V a, V b, V c) {
  return _mm256_fmadd_ps(a, b, c);
}
CPU_INLINE V round(V a) {
  return _mm256_round_ps(a, 8);
}
// n is a whole number in -126 .. 127
CPU_INLINE V power2(V a, V n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
CPU_INLINE V zero_below(V x, V limit, V v) {
  return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_NLT_UQ), v);
}
CPU_INLINE float sum_lanes(V v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
CPU_INLINE float max_lanes(V v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
CPU_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
CPU_INLINE V load_some(const float* p, int n, V rest) {
  const __m256i mask = first_lanes(n);
  return _mm256_blendv_ps(rest, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
CPU_INLINE void store_some(float* p, int n, V v) {
  _mm256_maskstore_ps(p, first_lanes(n), v);
}

#else

typedef float V __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t VI __attribute__((vector_size(16)));
inline constexpr int W = 4;
inline constexpr int most_columns = 2;

CPU_INLINE V load(const float* p) {
  return *reinterpret_cast<const V*>(p);
}
CPU_INLINE void store(float* p, V v) {
  *reinterpret_cast<V*>(p) = v;
}
CPU_INLINE V set1(float x) {
  return V{x, x, x, x};
}
CPU_INLINE V add(V a, V b) {
  return a + b;
}
CPU_INLINE V sub(V a, V b) {
  return a - b;
}
CPU_INLINE V mul(V a, V b) {
  return a * b;
}
CPU_INLINE V max(V a, V b) {
  return a > b ? a : b;
}
CPU_INLINE V fma(V a, V b, V c) {
  return a * b + c;
}
// |a| < 2^22: adding and subtracting 1.5 * 2^23 leaves the nearest whole number.
CPU_INLINE V round(V a) {
  return (a + set1(12582912.0f)) - set1(12582912.0f);
}
CPU_INLINE V power2(V a, V n) {
  return a * reinterpret_cast<V>((__builtin_convertvector(n, VI) + 127) << 23);
}
CPU_INLINE V zero_below(V x, V limit, V v) {
  return x < limit ? set1(0.0f) : v;
}
CPU_INLINE float sum_lanes(V v) {
  return (v[0] + v[2]) + (v[1] + v[3]);
}
CPU_INLINE float max_lanes(V v) {
  const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
CPU_INLINE V load_some(const float* p, int n, V rest) {
  for (int k = 0; k < n; ++k) rest[k] = p[k];
  return rest;
}
CPU_INLINE void store_some(float* p, int n, V v) {
  for (int k = 0; k < n; ++k) p[k] = v[k];
}

#endif

// 2^x to about 1 ulp. Results below the normal numbers are 0, because computing such numbers takes hundreds of cycles.
// x must not exceed 127. A NaN stays NaN.
CPU_INLINE V exp2(V all) {
  const V lowest = set1(-126.0f), x = max(lowest, all);
  const V n = round(x), f = sub(x, n);  // f in [-1/2, 1/2]
  // Minimax fit of 2^f on that interval.
  V p = set1(1.535336188319500e-4f);
  p = fma(p, f, set1(1.339887440266574e-3f));
  p = fma(p, f, set1(9.618437357674640e-3f));
  p = fma(p, f, set1(5.550332471162809e-2f));
  p = fma(p, f, set1(2.402264791363012e-1f));
  p = fma(p, f, set1(6.931472028550421e-1f));
  p = fma(p, f, set1(1.0f));
  return zero_below(all, lowest, power2(p, n));
}

inline constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

inline constexpr int most_rows = 6;  // of a register tile

// C (R, C*W) = A (R, k) B (k, C*W) [+ C] with C in registers. Element (r, i) of A is a[r * row + i * step]. Operands
// are not packed: this is for the small blocks of attention, which lie in the cache.
template <int R, int C>
CPU_INLINE void register_tile(int64_t k, const float* a, int64_t row, int64_t step, const float* b, int64_t ldb,
                              float* c, int64_t ldc, bool accumulate) {
  V sum[R][C];
  CPU_UNROLL
  for (int r = 0; r < R; ++r) {
    CPU_UNROLL
    for (int j = 0; j < C; ++j) sum[r][j] = accumulate ? load(c + r * ldc + j * W) : set1(0.0f);
  }
  for (int64_t i = 0; i < k; ++i) {
    V column[C];
    CPU_UNROLL
    for (int j = 0; j < C; ++j) column[j] = load(b + j * W);
    CPU_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = set1(a[r * row]);
      CPU_UNROLL
      for (int j = 0; j < C; ++j) sum[r][j] = fma(x, column[j], sum[r][j]);
    }
    a += step, b += ldb;
  }
  CPU_UNROLL
  for (int r = 0; r < R; ++r) {
    CPU_UNROLL
    for (int j = 0; j < C; ++j) store(c + r * ldc + j * W, sum[r][j]);
  }
}

template <int C>
void row_tiles(int64_t m, int64_t k, const float* a, int64_t row, int64_t step, const float* b, int64_t ldb, float* c,
               int64_t ldc, bool accumulate) {
  for (; m >= 6; m -= 6, a += 6 * row, c += 6 * ldc) register_tile<6, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
  if (m == 5) register_tile<5, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
  if (m == 4) register_tile<4, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
  if (m == 3) register_tile<3, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
  if (m == 2) register_tile<2, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
  if (m == 1) register_tile<1, C>(k, a, row, step, b, ldb, c, ldc, accumulate);
}

// C (m, n) = A (m, k) B (k, n) [+ C]; n is a multiple of W, element (r, i) of A is a[r * row + i * step]. Each
// element is one chain of multiply-adds over k in order.
CPU_INLINE void product(int64_t m, int64_t n, int64_t k, const float* a, int64_t row, int64_t step, const float* b,
                        int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  int64_t left = n / W;
  if constexpr (most_columns >= 4)
    for (; left >= 4; left -= 4, b += 4 * W, c += 4 * W) row_tiles<4>(m, k, a, row, step, b, ldb, c, ldc, accumulate);
  if constexpr (most_columns >= 3)
    if (left == 3) row_tiles<3>(m, k, a, row, step, b, ldb, c, ldc, accumulate), left = 0;
  for (; left >= 2; left -= 2, b += 2 * W, c += 2 * W) row_tiles<2>(m, k, a, row, step, b, ldb, c, ldc, accumulate);
  if (left == 1) row_tiles<1>(m, k, a, row, step, b, ldb, c, ldc, accumulate);
}

}  // namespace cpu::CPU_ISA
