// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <algorithm>
#include <cstring>

#include "../common/parallel.hpp"

namespace moe {
namespace {

// Rows and columns of a part of C. With few rows, B is packed for little use; with few columns, A is.
constexpr int64_t most_rows = 504, most_columns = 512;
constexpr int64_t most_depth = 288;  // so that a panel of B fits the first-level cache

int64_t pieces(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}
int64_t round_up(int64_t n, int64_t unit) {
  return pieces(n, unit) * unit;
}
// n in as few blocks of about equal length as possible; it depends on n alone.
int64_t block_of(int64_t n) {
  return std::max<int64_t>(round_up(pieces(n, std::max<int64_t>(pieces(n, most_depth), 1)), 8), 1);
}

int64_t packed_floats(const ProductShape& s) {
  return round_up(cpu::most_packed_rows(std::min(most_rows, s.most_rows)) * most_depth, 16);
}
constexpr int64_t panel_floats = cpu::most_tile_columns * most_depth;
int64_t thread_floats(const ProductShape& s) {
  const bool sums = s.out != cpu::stored_f32;
  return packed_floats(s) + panel_floats + (sums ? round_up(std::min(most_rows, s.most_rows) * most_columns, 16) : 0);
}
uint64_t bytes_of_parts(const ProductShape& s) {  // and of the number of the first task of each
  return static_cast<uint64_t>(round_up(s.experts * int64_t{sizeof(Part)} + (s.experts + 1) * 8, 64));
}

template <class Pointer>
Pointer* element(Pointer* base, int64_t at, cpu::Stored stored) {
  using Byte = std::conditional_t<std::is_const_v<Pointer>, const char, char>;
  return static_cast<Byte*>(base) + at * cpu::stored_bytes(stored);
}

}  // namespace

uint64_t Product::scratch(const ProductShape& s, unsigned threads) {
  return bytes_of_parts(s) + sizeof(float) * static_cast<uint64_t>(thread_floats(s)) * threads;
}

// Part (rows, columns) of the product of one expert, both counted in parts.
void Product::multiply(const Part& p, int64_t row_part, int64_t column_part, float* scratch) const {
  const ProductShape& s = shape_;
  const int64_t row = row_part * most_rows, column = column_part * most_columns, at = row * s.columns + column;
  const bool half = s.out != cpu::stored_f32;
  const void* const plus = p.plus ? element(p.plus, at, s.plus) : nullptr;
  void* const c = element(p.c, at, s.out);
  float *const packed = scratch, *const panel = packed + packed_floats(s), *const sums = panel + panel_floats;
  cpu::Block x{};
  x.rows = std::min(most_rows, p.rows - row), x.columns = std::min(most_columns, s.columns - column);
  if (p.depth == 0) {
    for (int64_t r = 0; r < x.rows && p.plus != p.c; ++r)
      std::memset(element(c, r * s.columns, s.out), 0, static_cast<size_t>(x.columns * cpu::stored_bytes(s.out)));
    return;
  }
  x.a = packed, x.panel = panel, x.b_k = s.b_k, x.b_column = s.b_column;
  x.c = half ? sums : static_cast<float*>(c), x.ldc = half ? x.columns : s.columns;
  const int64_t block = block_of(p.depth);
  for (int64_t k = 0; k < p.depth; k += block) {
    x.depth = std::min(block, p.depth - k);
    x.b = element(p.b, k * s.b_k + column * s.b_column, s.in);
    x.plus = k > 0 ? x.c : half ? nullptr : static_cast<const float*>(plus);
    x.plus_stride = x.ldc;
    tiles_.pack_a[s.in](element(p.a, row * s.a_row + k * s.a_k, s.in), s.a_row, s.a_k, x.rows, x.depth, packed);
    tiles_.multiply[s.in](x);
  }
  if (half)
    tiles_.round_sums[s.out][s.plus == cpu::stored_f32](x.rows, x.columns, sums, x.columns, plus, s.columns, c,
                                                        s.columns);
}

void Product::run(void* scratch) const {
  const ProductShape& s = shape_;
  const Part* const all = parts(scratch);
  auto* const first = reinterpret_cast<int64_t*>(static_cast<Part*>(scratch) + s.experts);
  float* const rest = reinterpret_cast<float*>(static_cast<char*>(scratch) + bytes_of_parts(s));
  const int64_t across = pieces(s.columns, most_columns);
  first[0] = 0;
  for (int64_t e = 0; e < s.experts; ++e) first[e + 1] = first[e] + pieces(all[e].rows, most_rows) * across;
  cpu::parallel_tasks(threads_, first[s.experts], [&](unsigned thread, int64_t task) {
    const int64_t e = std::upper_bound(first, first + s.experts + 1, task) - first - 1, mine = task - first[e];
    multiply(all[e], mine / across, mine % across, rest + thread * thread_floats(s));
  });
}

}  // namespace moe
