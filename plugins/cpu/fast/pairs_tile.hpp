// SPDX-License-Identifier: Apache-2.0
// Products of bf16 with AVX-512 BF16, whose instruction multiplies 16 pairs of neighbouring elements along the depth
// and adds both products to an f32 sum. It reads and gives subnormal numbers as zeros, and rounds once per pair.
//
// Packed as in common/simd/gemm_tile.hpp, with a pair in the place of a float: a depth of n is packed into (n + 1) / 2
// steps.
#pragma once

#include "../../common/simd/gemm_tile.hpp"
#include "isa.hpp"

namespace cpu::CPU_ISA {
namespace {

struct Pair {
  uint16_t even, odd;
};
CPU_INLINE Four load_four(const Pair* p) {
  return Four(_mm_loadu_ps(reinterpret_cast<const float*>(p)));
}
CPU_INLINE float as_float(Pair p) {
  float x;
  __builtin_memcpy(&x, &p, sizeof x);
  return x;
}

// As pack_lanes: rows are contiguous along k, so that pairs are, too. `ahead`: meanwhile the W rows behind these are
// fetched, four cache lines for every 16 bytes of a row. Where few rows of A use a panel, its memory is waited for
// otherwise.
template <bool ahead>
CPU_INLINE void pack_pair_lanes(const bf16* from, int64_t ld, int64_t count, int64_t depth, int64_t stride,
                                float* out) {
  constexpr int64_t line = 64;
  const char* soon = reinterpret_cast<const char*>(from + W * ld);
  int64_t left = depth * 2;
  const Pair* rows[W];
  for (int r = 0; r < W; ++r) rows[r] = reinterpret_cast<const Pair*>(from + (r < count ? r : count - 1) * ld);
  int64_t s = 0;
  for (; s + 4 <= depth / 2; s += 4) {
    if constexpr (ahead)
      for (int i = 0; i < 4; ++i) {
        __builtin_prefetch(soon, 0, 2);
        soon += line, left -= line;
        if (left <= 0) soon += ld * 2 - (depth * 2 - left), left = depth * 2;
      }
    V v[4];
    load_transposed(rows, s, v);
    CPU_UNROLL
    for (int i = 0; i < 4; ++i) store_all(out + (s + i) * stride, v[i]);
  }
  for (; s < depth / 2; ++s)
    for (int r = 0; r < W; ++r) out[s * stride + r] = as_float(rows[r][s]);
  if (depth % 2)
    for (int r = 0; r < W; ++r) out[s * stride + r] = as_float({rows[r][s].even, 0});
}

// As copy_panel_row, from the elements of two neighbouring k; `odd` is null behind the end of the depth.
template <int stride>
CPU_INLINE void copy_pair_row(const bf16* even, const bf16* odd, int64_t width, float* out) {
  CPU_UNROLL
  for (int j = 0; j < stride; j += W) {
    const int64_t left = width - j;
    const auto mask = static_cast<__mmask16>(left >= W ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
    const auto widened = [&](const bf16* p) __attribute__((always_inline)) {
      return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p + j));
    };
    const __m512i high = odd ? _mm512_slli_epi32(widened(odd), 16) : _mm512_setzero_si512();
    store_all(out + j, {_mm512_castsi512_ps(_mm512_or_si512(widened(even), high))});
  }
}

inline void pack_a_pairs(const void* from_a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t depth,
                         float* out) {
  const bf16* a = static_cast<const bf16*>(from_a);
  const int64_t steps = (depth + 1) / 2;
  constexpr int64_t strip = 4;
  const Panels panels(rows);
  if (k_stride == 1) {
    for (int64_t p = 0; p < panels.count; a += panels.rows(p) * row_stride, out += steps * tile_stride, ++p)
      for (int r = 0; r < tile_stride && r < panels.rows(p); r += W)
        pack_pair_lanes<false>(a + r * row_stride, row_stride, panels.rows(p) - r, depth, tile_stride, out + r);
    return;
  }
  for (int64_t s0 = 0; s0 < steps; s0 += strip) {
    const bf16* from = a;
    for (int64_t p = 0; p < panels.count; from += panels.rows(p), ++p)
      for (int64_t s = s0; s < s0 + strip && s < steps; ++s) {
        const bf16* const even = from + 2 * s * k_stride;
        copy_pair_row<tile_stride>(even, 2 * s + 1 < depth ? even + k_stride : nullptr, panels.rows(p),
                                   out + (p * steps + s) * tile_stride);
      }
  }
}

// As pack_panel.
inline void pack_panel_pairs(const bf16* b, int64_t k_stride, int64_t column_stride, int64_t columns, int64_t depth,
                             float* out) {
  if (k_stride == 1) {
    for (int j = 0; j < columns; j += W)
      pack_pair_lanes<true>(b + j * column_stride, column_stride, columns - j < W ? columns - j : W, depth,
                            tile_columns, out + j);
    return;
  }
  for (int64_t k = 0; k < depth; k += 2, b += 2 * k_stride, out += tile_columns)
    copy_pair_row<tile_columns>(b, k + 1 < depth ? b + k_stride : nullptr, columns, out);
}

inline void multiply_pairs(const Block& x) {
  multiply_packing<bf16, pack_panel_pairs>(x, (x.depth + 1) / 2);
}

}  // namespace
}  // namespace cpu::CPU_ISA
