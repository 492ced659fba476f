// SPDX-License-Identifier: Apache-2.0
// Products of tiles in shared memory, by a block of tile_block threads: in 16 bits on tensor cores, in f32 by threads.
// The terms of a sum are added in their order.
// Factors of 16 bits are rounded to their type, sums are f32.
#pragma once

#include "tensor.cuh"

namespace cuda {

// Rows and columns of a tile of sums; two warps beside and two below each other.
constexpr int tile = 64, tile_block = 128;

// Elements between a row of a tile and the next one, which then begins in another bank.
template <class T>
inline constexpr int tile_pad = 16 / static_cast<int>(sizeof(T));

// The sums of a thread for T: of tensor cores two by four of their tiles; or those of rows y + 8 i and columns x + 16
// j.
template <class T>
struct Sums {
  static constexpr bool scalar = sizeof(T) == 4;
  static constexpr int rows = scalar ? 8 : 4, columns = 32 / rows;  // of a thread
  float of[2][4][4] = {};

  __device__ __forceinline__ float& at(int a, int b) {
    if constexpr (scalar)
      return of[a / 4][a % 4][b];
    else
      return of[a / 2][b / 2][a % 2 * 2 + b % 2];
  }
  // The place of at(a, b) in the tile.
  __device__ __forceinline__ static int row(int a) {
    const int thread = static_cast<int>(threadIdx.x);
    return scalar ? thread / 16 + 8 * a : thread / 64 * 32 + a / 2 * 16 + thread % 32 / 4 + a % 2 * 8;
  }
  __device__ __forceinline__ static int column(int b) {
    const int thread = static_cast<int>(threadIdx.x);
    return scalar ? thread % 16 + 16 * b : thread / 32 % 2 * 32 + b / 2 * 8 + thread % 4 * 2 + b % 2;
  }
  // Calls f(n, row, column, sum) for the thread's own: n from 0 to 31.
  template <class F>
  __device__ __forceinline__ void each_own(F&& f) {
    ENG_UNROLL
    for (int n = 0; n < 32; ++n) f(n, row(n / columns), column(n % columns), at(n / columns, n % columns));
  }
  // Calls f(row, column, sum) for all of the tile.
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
    each_own([&](int, int i, int j, float& sum) { f(i, j, sum); });
  }

  // Adds the products of `depth` terms. a has a line for each row of the tile and the terms beside each other if
  // `a_by_terms`, or else a line for each term; b likewise, with columns.
  template <bool a_by_terms, bool b_by_terms, int depth, class A, class B>
  __device__ __forceinline__ void add(A& a, B& b) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    if constexpr (scalar) {
      const int x = thread % 16, y = thread / 16;
      ENG_UNROLL_BY(4)
      for (int t = 0; t < depth; ++t) {
        float left[8], right[4];
        ENG_UNROLL
        for (int i = 0; i < 8; ++i) left[i] = a_by_terms ? a[y + 8 * i][t] : a[t][y + 8 * i];
        ENG_UNROLL
        for (int j = 0; j < 4; ++j) right[j] = b_by_terms ? b[x + 16 * j][t] : b[t][x + 16 * j];
        ENG_UNROLL
        for (int i = 0; i < 32; ++i)
          of[i / 16][i / 4 % 4][i % 4] = fmaf(left[i / 4], right[i % 4], of[i / 16][i / 4 % 4][i % 4]);
      }
    } else {
      const int row = thread / 64 * 32, column = thread / 32 % 2 * 32;
      // The row of a matrix of 8 by 8 to which this lane points, and which of two beside or below it is.
      const int inner = lane % 8, second = lane / 8 % 2 * 8, third = lane / 16 * 8;
      ENG_UNROLL
      for (int t = 0; t < depth; t += 16) {
        uint32_t left[2][4], right[2][4];
        ENG_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int m = row + 16 * i, n = column + 16 * i;
          ldmatrix<!a_by_terms>(left[i], shared_address(a_by_terms ? &a[m + second + inner][t + third]
                                                                   : &a[t + third + inner][m + second]));
          ldmatrix<!b_by_terms>(right[i], shared_address(b_by_terms ? &b[n + third + inner][t + second]
                                                                    : &b[t + second + inner][n + third]));
        }
        ENG_UNROLL
        for (int i = 0; i < 8; ++i)
          mma<T>(of[i / 4][i % 4], left[i / 4], right[i / 2 % 2][i % 2 * 2], right[i / 2 % 2][i % 2 * 2 + 1]);
      }
    }
  }
};

// The sum of x over the lanes of a warp up to this one.
__device__ __forceinline__ double sum_up_to(double x) {
  const auto lane = static_cast<int>(threadIdx.x % warp);
  for (int by = 1; by < 32; by *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, x, by);
    if (lane >= by) x += other;
  }
  return x;
}

// A part of a matrix in memory, with rows `stride` elements apart, no larger than a tile; zeros behind it.
template <class E>
struct Part {
  const E* at;
  int stride, rows, columns;
  __device__ __forceinline__ Part(const E* from, int64_t to_next, int64_t all_rows, int64_t all_columns)
      : at(from),
        stride(static_cast<int>(to_next)),
        rows(all_rows < tile ? static_cast<int>(all_rows) : tile),
        columns(all_columns < tile ? static_cast<int>(all_columns) : tile) {}
  __device__ __forceinline__ bool has(int i, int j) const { return i < rows && j < columns; }
  __device__ __forceinline__ int index(int i, int j) const { return i * stride + j; }
  __device__ __forceinline__ float operator()(int i, int j) const {
    return has(i, j) ? to_f32<Nan::any>(at[index(i, j)]) : 0.0f;
  }
};

// Shared memory for the factors of a product. kept: a left factor that a kernel has made itself.
struct Kept {};
template <class T>
struct Factors {
  struct Tile {
    alignas(16) T at[tile][tile + tile_pad<T>];
  };
  Tile left, right, kept;
  template <class A>
  static constexpr bool made = std::is_same_v<A, Kept>;

  // a(i, j) and b(i, j) give the elements of a line of the factor, which are rounded to T; a Kept is in `kept`.
  template <class A, class B>
  __device__ __forceinline__ void fill(const A& a, const B& b) {
    ENG_UNROLL_BY(4)
    for (int k = static_cast<int>(threadIdx.x); k < tile * tile; k += tile_block) {
      const int i = k / tile, j = k % tile;
      if constexpr (!made<A>) from_f32<Nan::any>(a(i, j), left.at[i][j]);
      from_f32<Nan::any>(b(i, j), right.at[i][j]);
    }
  }
  // sums += a b.
  template <bool a_by_terms, bool b_by_terms, class A>
  __device__ __forceinline__ void add_to(Sums<T>& sums, const A&) {
    sums.template add<a_by_terms, b_by_terms, tile>(made<A> ? kept.at : left.at, right.at);
  }
};

// Sums of the rows or the columns of a tile: each thread's own, then over lanes, then over the `sides` of the tile.
template <class T, bool of_rows>
struct Totals {
  static constexpr bool scalar = Sums<T>::scalar;
  static constexpr int count = of_rows ? Sums<T>::rows : Sums<T>::columns;
  static constexpr int least = of_rows ? 1 : scalar ? 16 : 4, most = of_rows ? (scalar ? 8 : 2) : 16;  // lanes
  static constexpr int sides = scalar ? (of_rows ? 1 : 4) : 2;
  float of[count] = {};
  // n: as in Sums::each_own.
  __device__ __forceinline__ void add(int n, float x) {
    of[of_rows ? n / Sums<T>::columns : n % Sums<T>::columns] += x;
  }
  __device__ __forceinline__ void write(float (*out)[tile]) const {
    const int thread = static_cast<int>(threadIdx.x), side = thread / 32 / (scalar || of_rows ? 1 : 2) % sides;
    ENG_UNROLL
    for (int k = 0; k < count; ++k) {
      float x = of[k];
      for (int by = most; by >= least; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
      if ((thread & (2 * most - least)) == 0) out[side][of_rows ? Sums<T>::row(k) : Sums<T>::column(k)] = x;
    }
  }
  // The sum k of what was written.
  __device__ __forceinline__ static double read(const float (*from)[tile], int k) {
    float sum = 0;
    for (int side = 0; side < sides; ++side) sum += from[side][k];
    return static_cast<double>(sum);
  }
};

// The sum of so many lines, in order. The results may be rows of `columns` that lie `gap` elements apart.
template <class S>
struct SumLinesOf {
  static constexpr int width = 1;
  const float* lines;
  S* out;
  int64_t count, stride, columns = 1, gap = 0;
  template <int>
  __device__ void at(int64_t i) const {
    float sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += lines[k * stride + i];
    from_f32<Nan::any>(sum, out[i + i / columns * gap]);
  }
};

}  // namespace cuda
