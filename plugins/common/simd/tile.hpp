// SPDX-License-Identifier: Apache-2.0
// Products of small blocks in registers, for the instruction set this file is compiled for. Everything lives in a
// namespace of that instruction set (CPU_ISA, given by the build): the linker must never take one set's function for
// another's. For the same reason nothing here uses templates or inline functions of the standard library.
#pragma once

#define SIMD_PORTABLE_FOUR
#include "half.hpp"
#include "tanh.hpp"

#ifdef __clang__
#define CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLL _Pragma("GCC unroll 64")
#endif
#define CPU_INLINE inline __attribute__((always_inline))

namespace cpu::CPU_ISA {
namespace {

using V = vec;
inline constexpr int W = width;
#if defined(__AVX512F__)
inline constexpr int most_columns = 4;  // registers per row of a register tile
#else
inline constexpr int most_columns = 2;
#endif

// Four neighbouring elements as floats.
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
CPU_INLINE Four load_four(const float* p) {
  return *reinterpret_cast<const Four*>(p);
}
#if defined(__AVX2__)
CPU_INLINE Four load_four(const bf16* p) {
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return reinterpret_cast<Four>(_mm_slli_epi32(_mm_cvtepu16_epi32(x), 16));
}
CPU_INLINE Four load_four(const f16* p) {
  return reinterpret_cast<Four>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
#else
template <half T>
CPU_INLINE Four load_four(const T* p) {
  return load_all(p).x;
}
#endif
CPU_INLINE float load_one(const float* p) {
  return *p;
}
template <half T>
CPU_INLINE float load_one(const T* p) {
  float x[W];
  store_all(x, load_some(p, 1));
  return x[0];
}

// 2^x to about 1 ulp. Results below the normal numbers are 0, because computing such numbers takes hundreds of cycles.
// x must not exceed 127. A NaN stays NaN.
CPU_INLINE V exp2(V all) {
  const V lowest = splat(-126.0f), x = max(lowest, all);
  const V n = round(x), f = x - n;  // f in [-1/2, 1/2]
  // Minimax fit of 2^f on that interval.
  V p = splat(1.535336188319500e-4f);
  p = fma(p, f, splat(1.339887440266574e-3f));
  p = fma(p, f, splat(9.618437357674640e-3f));
  p = fma(p, f, splat(5.550332471162809e-2f));
  p = fma(p, f, splat(2.402264791363012e-1f));
  p = fma(p, f, splat(6.931472028550421e-1f));
  p = fma(p, f, splat(1.0f));
  return zero_below(all, lowest, scale2_normal(p, n));
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
    for (int j = 0; j < C; ++j) sum[r][j] = accumulate ? load_all(c + r * ldc + j * W) : splat(0.0f);
  }
  for (int64_t i = 0; i < k; ++i) {
    V column[C];
    CPU_UNROLL
    for (int j = 0; j < C; ++j) column[j] = load_all(b + j * W);
    CPU_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = splat(a[r * row]);
      CPU_UNROLL
      for (int j = 0; j < C; ++j) sum[r][j] = fma(x, column[j], sum[r][j]);
    }
    a += step, b += ldb;
  }
  CPU_UNROLL
  for (int r = 0; r < R; ++r) {
    CPU_UNROLL
    for (int j = 0; j < C; ++j) store_all(c + r * ldc + j * W, sum[r][j]);
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

}  // namespace
}  // namespace cpu::CPU_ISA
