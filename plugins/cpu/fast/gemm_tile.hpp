// SPDX-License-Identifier: Apache-2.0
// The own matrix product: blocks of A and B are copied into the order in which the register tiles read them.
#pragma once

#include "isa.hpp"
#include "simd.hpp"

namespace cpu::CPU_ISA {

inline constexpr int64_t pack_k = 256, pack_m = 120, pack_n = 768;
static_assert((pack_k * (pack_m + pack_n) + most_rows * most_columns * W) * sizeof(float) <= gemm_tile_scratch);

// B (depth, width) -> panels of most_columns*W columns, rows contiguous, zero beyond the width.
inline void pack_b(const float* b, int64_t k_stride, int64_t n_stride, int64_t depth, int64_t width, float* out) {
  constexpr int64_t panel = most_columns * W;
  for (int64_t n0 = 0; n0 < width; n0 += panel) {
    const int64_t columns = width - n0 < panel ? width - n0 : panel;
    const float* from = b + n0 * n_stride;
    if (n_stride == 1) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t n = 0; n < panel; ++n) out[k * panel + n] = n < columns ? from[k * k_stride + n] : 0.0f;
    } else {
      for (int64_t n = 0; n < panel; ++n)
        for (int64_t k = 0; k < depth; ++k) out[k * panel + n] = n < columns ? from[k * k_stride + n * n_stride] : 0.0f;
    }
    out += panel * depth;
  }
}

// A (height, depth) -> panels of most_rows rows, columns contiguous.
inline void pack_a(const float* a, int64_t m_stride, int64_t k_stride, int64_t height, int64_t depth, float* out) {
  for (int64_t m0 = 0; m0 < height; m0 += most_rows) {
    const int64_t rows = height - m0 < most_rows ? height - m0 : most_rows;
    for (int64_t r = 0; r < most_rows; ++r)
      for (int64_t k = 0; k < depth; ++k)
        out[k * most_rows + r] = r < rows ? a[(m0 + r) * m_stride + k * k_stride] : 0.0f;
    out += most_rows * depth;
  }
}

inline void gemm_tile(const TileShape& s, const float* a, const float* b, const float* bias, float* c, void* scratch) {
  constexpr int64_t panel = most_columns * W;
  float* const packed_b = static_cast<float*>(scratch);
  float* const packed_a = packed_b + pack_k * pack_n;
  float* const edge = packed_a + pack_k * pack_m;
  const int64_t am = s.ta ? 1 : s.lda, ak = s.ta ? s.lda : 1, bk = s.tb ? 1 : s.ldb, bn = s.tb ? s.ldb : 1;
  if (s.k == 0 && !s.accumulate)
    for (int64_t m = 0; m < s.m; ++m)
      for (int64_t n = 0; n < s.n; ++n) c[m * s.ldc + n] = 0.0f;
  for (int64_t n0 = 0; n0 < s.n; n0 += pack_n) {
    const int64_t width = s.n - n0 < pack_n ? s.n - n0 : pack_n;
    for (int64_t k0 = 0; k0 < s.k; k0 += pack_k) {
      const int64_t depth = s.k - k0 < pack_k ? s.k - k0 : pack_k;
      const bool more = s.accumulate || k0 > 0;
      pack_b(b + k0 * bk + n0 * bn, bk, bn, depth, width, packed_b);
      for (int64_t m0 = 0; m0 < s.m; m0 += pack_m) {
        const int64_t height = s.m - m0 < pack_m ? s.m - m0 : pack_m;
        pack_a(a + m0 * am + k0 * ak, am, ak, height, depth, packed_a);
        for (int64_t n = 0; n < width; n += panel)
          for (int64_t m = 0; m < height; m += most_rows) {
            const float* pa = packed_a + m * depth;
            const float* pb = packed_b + n * depth;
            float* const pc = c + (m0 + m) * s.ldc + n0 + n;
            const int64_t rows = height - m, columns = width - n;
            if (rows >= most_rows && columns >= panel) {
              register_tile<most_rows, most_columns>(depth, pa, 1, most_rows, pb, panel, pc, s.ldc, more);
              continue;
            }
            const int64_t r_end = rows < most_rows ? rows : most_rows, n_end = columns < panel ? columns : panel;
            for (int64_t r = 0; r < r_end; ++r)
              for (int64_t j = 0; j < n_end; ++j) edge[r * panel + j] = more ? pc[r * s.ldc + j] : 0.0f;
            register_tile<most_rows, most_columns>(depth, pa, 1, most_rows, pb, panel, edge, panel, true);
            for (int64_t r = 0; r < r_end; ++r)
              for (int64_t j = 0; j < n_end; ++j) pc[r * s.ldc + j] = edge[r * panel + j];
          }
      }
    }
  }
  if (s.bias)
    for (int64_t m = 0; m < s.m; ++m)
      for (int64_t n = 0; n < s.n; ++n) c[m * s.ldc + n] += bias[n];
}

}  // namespace cpu::CPU_ISA
