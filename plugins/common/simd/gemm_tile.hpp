// SPDX-License-Identifier: Apache-2.0
// Matrix products of one thread: operands are copied ("packed") into the order in which the register tiles read them,
// and a packed block of A is multiplied by packed panels of B (Goto and van de Geijn 2008).
//
// Order of summation: every element of C is one chain of multiply-adds over the depth of a block, k upwards from zero.
// Then `plus` (what C held before, or a bias) is added. The bits do not depend on where tiles, rows or columns begin.
//
// Packed layout: a panel of A is (depth, tile_stride), a panel of B (depth, tile_columns): step k of a tile reads one
// row of each, so both are read from start to end.
#pragma once

#include "gemm_block.hpp"
#include "tile.hpp"

namespace cpu::CPU_ISA {
namespace {

// A tile of C is tile_rows x tile_columns (or less) and stays in registers: with AVX-512 14 x 2 = 28 of 32 registers,
// with AVX2 6 x 2 = 12 of 16. The rest hold a row of B and one element of A. A panel of B of usual depth, 256, fits the
// first-level cache and is used by every panel of A in turn.
// Packing writes whole registers: where tile_stride is less than that, a step is overwritten by the next one, and the
// last step of a panel of A writes `tile_spill` floats behind it.
#if defined(__AVX512F__)
inline constexpr int tile_rows = 14, tile_stride = 16;
#else
inline constexpr int tile_rows = 6, tile_stride = 6;
#endif
inline constexpr int tile_vectors = 2, tile_columns = tile_vectors * W;
inline constexpr int tile_spill = (tile_rows + W - 1) / W * W - tile_stride;

// x y + sum; with AVX-512 BF16 x and y are pairs of bf16, and both products are added.
CPU_INLINE V multiply_add(V x, V y, V sum) {
#if defined(__AVX512BF16__)
  return {_mm512_dpbf16_ps(sum.x, (__m512bh)(x.x), (__m512bh)(y.x))};
#else
  return fma(x, y, sum);
#endif
}

// Loads the four floats k .. k + 3 of each of W rows and transposes them: v[i] holds element k + i of all rows.
template <class T>
CPU_INLINE void load_transposed(const T* const* rows, int64_t k, V* v) {
  const auto four = [&](int row) __attribute__((always_inline)) {
    return load_four(rows[row] + k);
  };
#if defined(__AVX512F__)
  __m512 x[4];
  CPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_castps128_ps512(__m128(four(i)));
    const __m512 b = _mm512_mask_broadcast_f32x4(a, 0x00f0, __m128(four(i + 4)));
    const __m512 c = _mm512_mask_broadcast_f32x4(b, 0x0f00, __m128(four(i + 8)));
    x[i] = _mm512_mask_broadcast_f32x4(c, 0xf000, __m128(four(i + 12)));
  }
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(x[0], x[1])),
                b = _mm512_castps_pd(_mm512_unpackhi_ps(x[0], x[1])),
                c = _mm512_castps_pd(_mm512_unpacklo_ps(x[2], x[3])),
                d = _mm512_castps_pd(_mm512_unpackhi_ps(x[2], x[3]));
  v[0] = {_mm512_castpd_ps(_mm512_unpacklo_pd(a, c))}, v[1] = {_mm512_castpd_ps(_mm512_unpackhi_pd(a, c))};
  v[2] = {_mm512_castpd_ps(_mm512_unpacklo_pd(b, d))}, v[3] = {_mm512_castpd_ps(_mm512_unpackhi_pd(b, d))};
#elif defined(__AVX2__)
  __m256 x[4];
  CPU_UNROLL
  for (int i = 0; i < 4; ++i)
    x[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(__m128(four(i))), __m128(four(i + 4)), 1);
  const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(x[0], x[1])),
                b = _mm256_castps_pd(_mm256_unpackhi_ps(x[0], x[1])),
                c = _mm256_castps_pd(_mm256_unpacklo_ps(x[2], x[3])),
                d = _mm256_castps_pd(_mm256_unpackhi_ps(x[2], x[3]));
  v[0] = {_mm256_castpd_ps(_mm256_unpacklo_pd(a, c))}, v[1] = {_mm256_castpd_ps(_mm256_unpackhi_pd(a, c))};
  v[2] = {_mm256_castpd_ps(_mm256_unpacklo_pd(b, d))}, v[3] = {_mm256_castpd_ps(_mm256_unpackhi_pd(b, d))};
#else
  const Four r0 = four(0), r1 = four(1), r2 = four(2), r3 = four(3);
  const Four a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r0, r1, 2, 6, 3, 7),
             c = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  v[0] = {__builtin_shufflevector(a, c, 0, 1, 4, 5)}, v[1] = {__builtin_shufflevector(a, c, 2, 3, 6, 7)};
  v[2] = {__builtin_shufflevector(b, d, 0, 1, 4, 5)}, v[3] = {__builtin_shufflevector(b, d, 2, 3, 6, 7)};
#endif
}

// Packs W lanes of a panel from rows that are contiguous along k: out[k * stride + lane] = from[lane * ld + k]. Lanes
// from `count` on repeat the last row.
template <class T>
CPU_INLINE void pack_lanes(const T* from, int64_t ld, int64_t count, int64_t depth, int64_t stride, float* out) {
  const T* rows[W];
  for (int r = 0; r < W; ++r) rows[r] = from + (r < count ? r : count - 1) * ld;
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    V v[4];
    load_transposed(rows, k, v);
    CPU_UNROLL
    for (int i = 0; i < 4; ++i) store_all(out + (k + i) * stride, v[i]);
  }
  for (; k < depth; ++k)
    for (int r = 0; r < W; ++r) out[k * stride + r] = load_one(rows[r] + k);
}

// Packs one row of a panel from `width` neighbouring elements. The rest of the `stride` floats is unspecified: products
// with it are never stored.
template <int stride, class T>
CPU_INLINE void copy_panel_row(const T* from, int64_t width, float* out) {
  CPU_UNROLL
  for (int j = 0; j < stride; j += W) {
    const int64_t left = width - j;
    store_all(out + j, left >= W ? load_all(from + j)
                                 : load_some_or(from + j, left > 0 ? static_cast<int>(left) : 0, splat(0.0f)));
  }
}

// Cuts `rows` rows into as few panels as possible, of nearly equal height.
struct Panels {
  int64_t count, height, higher;  // all have `height` rows; the last `higher` ones have one more
  CPU_INLINE explicit Panels(int64_t rows)
      : count((rows + tile_rows - 1) / tile_rows), height(rows / count), higher(rows - height * count) {}
  CPU_INLINE int64_t rows(int64_t panel) const { return height + (panel >= count - higher); }
};

CPU_INLINE int64_t panel_floats(int64_t depth) {
  return depth * tile_stride + tile_spill;
}

// A (rows, depth) -> panels. k_stride or row_stride is 1.
template <class T>
void pack_a(const void* from_a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t depth, float* out) {
  const T* a = static_cast<const T*>(from_a);
  constexpr int64_t strip = 8;  // steps of k for all panels in turn, because neighbouring panels share cache lines
  const Panels panels(rows);
  // A is stored by rows: transpose W rows of a panel at a time, the last ones first. Otherwise A is stored by k: copy.
  if (k_stride == 1) {
    for (int64_t p = 0; p < panels.count; a += panels.rows(p) * row_stride, out += panel_floats(depth), ++p)
      for (int r = (tile_rows - 1) / W * W; r >= 0; r -= W)
        if (r < panels.rows(p))
          pack_lanes(a + r * row_stride, row_stride, panels.rows(p) - r, depth, tile_stride, out + r);
    return;
  }
  // Whole registers are copied where all that they hold is A's own; what lies behind a panel is not used.
  constexpr int64_t whole = tile_stride + tile_spill;
  const int64_t last = (depth - 1) * k_stride + rows - whole;
  for (int64_t k0 = 0; k0 < depth; k0 += strip, out += strip * tile_stride) {
    const int64_t end = depth - k0 < strip ? depth - k0 : strip;
    int64_t from = k0 * k_stride;
    for (int64_t p = 0; p < panels.count; from += panels.rows(p), ++p) {
      const auto copy = [&](int64_t width) __attribute__((always_inline)) {
        for (int64_t k = 0; k < end; ++k)
          copy_panel_row<tile_stride>(a + from + k * k_stride, width, out + p * panel_floats(depth) + k * tile_stride);
      };
      if (from + (end - 1) * k_stride <= last)
        copy(whole);
      else
        copy(panels.rows(p));
    }
  }
}

// One panel of B, (depth, columns) with at most tile_columns columns. column_stride or k_stride is 1.
template <class T>
__attribute__((noinline)) void pack_panel(const T* b, int64_t k_stride, int64_t column_stride, int64_t columns,
                                          int64_t depth, float* out) {
  // B is stored by columns: transpose W columns at a time. Otherwise B is stored by k: copy.
  if (k_stride == 1) {
    for (int j = 0; j < columns; j += W)
      pack_lanes(b + j * column_stride, column_stride, columns - j < W ? columns - j : W, depth, tile_columns, out + j);
    return;
  }
  for (int64_t k = 0; k < depth; ++k, b += k_stride, out += tile_columns) copy_panel_row<tile_columns>(b, columns, out);
}

// Fetches what will be read soon into the second-level cache: some cache lines before each tile, so that the memory is
// hardly waited for. Requests within a tile would cost more instructions.
struct Fetch {
  static constexpr int64_t line = 64;  // bytes
  const char* at;
  int64_t stride, width, left, rows, lines;  // left: bytes of this row; lines: to fetch each time
  CPU_INLINE explicit Fetch(const Ahead& a, int64_t times)
      : at(a.from),
        stride(a.stride),
        width(a.width),
        left(a.width),
        rows(a.count),
        lines((a.count * ((a.width + line - 1) / line) + times - 1) / times) {}
  CPU_INLINE void some() {
    for (int64_t k = 0; k < lines && rows > 0; ++k) {
      __builtin_prefetch(at, 0, 2);
      at += line, left -= line;
      if (left <= 0) at += stride - (width - left), left = width, --rows;
    }
  }
};

struct TileCall {
  int64_t depth, ldc, plus_stride;
  const float *a, *b, *plus;
  float* c;
  int64_t columns;      // of this tile of C, 1 .. tile_columns
  const float* next_c;  // fetched: the tile of C after this one
  int64_t b_k;          // where B is read in place: the distance of its rows
  float* panel;         // and the panel that they are copied to
};

// C (R, columns) = A B + plus for one tile of R rows and C registers of columns. `packs`: B is read in place, and
// packed for the tiles after this one, which takes about twice as long. Not inlined: each tile gets the registers for
// itself.
template <int R, int C, bool packs>
__attribute__((noinline)) void multiply_tile(const TileCall& t) {
  constexpr int64_t strip = 16;
  V sum[R][C];
  CPU_UNROLL
  for (int r = 0; r < R; ++r) {
    CPU_UNROLL
    for (int j = 0; j < C; ++j) sum[r][j] = splat(0.0f);
  }
  const float *a = t.a, *b = t.b, *next_c = t.next_c;
  // Step k + i: one row of B, C registers wide, times each of R elements of A. R * C independent multiply-adds hide the
  // latency of each.
  const auto step = [&](int i) __attribute__((always_inline)) {
    V column[C];
    CPU_UNROLL
    for (int j = 0; j < C; ++j) column[j] = load_all(b + i * tile_columns + j * W);
    CPU_UNROLL
    for (int r = 0; r < R; ++r) {
      const V x = splat(a[i * tile_stride + r]);
      CPU_UNROLL
      for (int j = 0; j < C; ++j) sum[r][j] = multiply_add(x, column[j], sum[r][j]);
    }
  };
  int64_t k = t.depth;
  if constexpr (packs) {
    float* panel = t.panel;
    for (; k > 0; --k, a += tile_stride, b += t.b_k, panel += tile_columns) {
      CPU_UNROLL
      for (int j = 0; j < C; ++j) store_all(panel + j * W, load_all(b + j * W));
      __builtin_prefetch(b + 16 * t.b_k);
      step(0);
    }
  }
  // Strips of 16 steps, each with its request for a row of the next tile of C; then the rest of the depth.
  while (k >= strip) {
    __builtin_prefetch(next_c, 1), __builtin_prefetch(next_c + C * W - 1, 1), next_c += t.ldc;
    for (const int64_t end = k - strip; k > end; k -= 8, a += 8 * tile_stride, b += 8 * tile_columns)
      step(0), step(1), step(2), step(3), step(4), step(5), step(6), step(7);
  }
  for (; k > 0; --k, a += tile_stride, b += tile_columns) step(0);
  // Add `plus` and store: whole registers, or the valid columns of the last tile.
  float* const c = t.c;
  const float* const plus = t.plus;
  const int64_t ldc = t.ldc, plus_stride = t.plus_stride;
  if (t.columns == C * W) {
    const auto store_with = [&](auto more) __attribute__((always_inline)) {
      CPU_UNROLL
      for (int r = 0; r < R; ++r) {
        CPU_UNROLL
        for (int j = 0; j < C; ++j) store_all(c + r * ldc + j * W, sum[r][j] + more(r, j));
      }
    };
    if (plus)
      store_with([=](int r, int j) __attribute__((always_inline)) { return load_all(plus + r * plus_stride + j * W); });
    else
      store_with([](int, int) __attribute__((always_inline)) { return splat(0.0f); });
    return;
  }
  CPU_UNROLL
  for (int r = 0; r < R; ++r) {
    CPU_UNROLL
    for (int j = 0; j < C; ++j) {
      const int64_t left = t.columns - j * W;
      const int n = static_cast<int>(left < W ? left : W);
      const V more = plus ? load_some_or(plus + r * plus_stride + j * W, n, splat(0.0f)) : splat(0.0f);
      store_some(c + r * ldc + j * W, sum[r][j] + more, n);
    }
  }
}

// Picks the tile for this number of rows and columns: one function for each, so that all loops over them are unrolled.
template <int R, bool packs>
inline void multiply_rows(int64_t rows, const TileCall& t) {
  if (rows < R) {
    if constexpr (R > 1) multiply_rows<R - 1, packs>(rows, t);
    return;
  }
  if (packs || t.columns > W)
    multiply_tile<R, 2, packs>(t);
  else
    multiply_tile<R, 1, false>(t);
}

// A block. Each panel of B in turn is packed, and multiplied by all panels of A: the panel of B stays in the
// first-level cache, and A is read from the second or the last. `steps` of the depth: floats of a packed lane.
template <class T, auto pack>
CPU_INLINE void multiply_packing(const Block& x, int64_t steps) {
  const Panels panels(x.rows);
  const T* b = static_cast<const T*>(x.b);
  Fetch later(x.later, panels.count * ((x.columns + tile_columns - 1) / tile_columns));
  const auto width = [&](int64_t n) { return x.columns - n < tile_columns ? x.columns - n : tile_columns; };
  for (int64_t n = 0; n < x.columns; n += tile_columns) {
    // A whole panel of f32 that is stored by k is packed by the first tile.
    bool in_place = sizeof(T) == sizeof(float) && x.b_column == 1 && width(n) == tile_columns;
    if (!in_place) pack(b, x.b_k, x.b_column, width(n), x.depth, x.panel);
    TileCall t{steps,   x.ldc,    x.plus_stride, x.a,   x.panel, x.plus ? x.plus + n : nullptr,
               x.c + n, width(n), nullptr,       x.b_k, x.panel};
    if (in_place) t.b = reinterpret_cast<const float*>(b);
    b += tile_columns * x.b_column;
    // The next panel is fetched. A few tiles would ask for too much at once, and rows of B are fetched by the
    // processor.
    Ahead panel;
    const int64_t next = width(n + tile_columns), size = sizeof(T);
    if (next > 0 && x.b_column == 1)
      panel = {reinterpret_cast<const char*>(b), x.b_k * size, next * size, x.depth};
    else if (next > 0 && panels.count >= 6)
      panel = {reinterpret_cast<const char*>(b), x.b_column * size, x.depth * size, next};
    Fetch soon(panel, panels.count);
    for (int64_t p = 0; p < panels.count; ++p) {
      const int64_t height = panels.rows(p);
      t.next_c = p + 1 < panels.count ? t.c + height * x.ldc : x.c + n + (next > 0 ? tile_columns : 0);
      soon.some(), later.some();
      if (in_place)
        multiply_rows<tile_rows, true>(height, t), t.b = x.panel, in_place = false;
      else
        multiply_rows<tile_rows, false>(height, t);
      t.a += panel_floats(steps), t.c += height * x.ldc;
      if (t.plus) t.plus += height * x.plus_stride;
    }
  }
}
template <class T>
void multiply(const Block& x) {
  multiply_packing<T, pack_panel<T>>(x, x.depth);
}

// C (rows, columns) = sums + plus, rounded to T once. plus: a matrix of P, one row for all rows, or null.
template <class T, class P>
void round_sums(int64_t rows, int64_t columns, const float* sums, int64_t ld, const void* plus, int64_t plus_stride,
                void* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const sum = sums + r * ld;
    const P* const more = plus ? static_cast<const P*>(plus) + r * plus_stride : nullptr;
    T* const to = static_cast<T*>(c) + r * ldc;
    for_lanes(
        columns, [=](int64_t i, auto k) __attribute__((always_inline)) {
          const V x = load(sum + i, k);
          store(to + i, more ? x + load(more + i, k) : x, k);
        });
  }
}

}  // namespace
}  // namespace cpu::CPU_ISA
