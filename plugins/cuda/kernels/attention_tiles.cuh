// SPDX-License-Identifier: Apache-2.0
// Tiles in shared memory, and their products: what the kernels of attention are made of.
//
// A block has 4 warps. Each has R times 16 rows of a tile of its own and multiplies them by tiles of the other side,
// which come through two buffers. Products of scores stay in the registers in which they were made: a sum of
// tensor cores is, packed, the left side of the next product. Tiles of f32 are multiplied by fused multiply-adds; their
// sums are where those of tensor cores would be.
#pragma once

#include "../../common/cuda/tensor.cuh"
#include "attention.hpp"

namespace cuda {
namespace attention {

constexpr int threads = 128;
constexpr float log2_e = 1.44269504f;

__device__ __forceinline__ int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}

// (N, D) elements. Chunks of 16 bytes change places within their row such that 8 neighbouring rows have the same chunk
// in different banks.
template <class T, int D, int N>
struct Tile {
  static constexpr int each = 16 / sizeof(T);                               // elements of a chunk
  static constexpr int chunks = D / each, mixed = chunks % 8 == 0 ? 8 : 4;  // chunks that change places with each other
  static_assert(chunks % 4 == 0);
  T at[N * D];
  // In bytes.
  __host__ __device__ static constexpr int place(int row, int chunk) {
    return (row * chunks + (chunk ^ (mixed == 8 ? row & 7 : row >> 1 & 3))) * 16;
  }
  // The place of chunk c + `more`, even, in row r + `rows`, a multiple of 16, from that of chunk c, 0 or 1, in row r:
  // with constants, a single operation at most.
  __device__ __forceinline__ static int further(int place, int rows, int more) {
    return (place ^ more % mixed * 16) + (more / mixed * mixed + rows * chunks) * 16;
  }
  __device__ __forceinline__ SharedAddress address() { return shared_address(at); }
  template <class W>
  __device__ __forceinline__ W& as(int place) {
    return *reinterpret_cast<W*>(reinterpret_cast<char*>(at) + place);
  }
};

// Head, sequence and tile of a block: the head varies fastest, then the sequence, then the tile.
struct Turn {
  int head, sequence, tile;
  __device__ __forceinline__ Turn(unsigned index, int64_t heads, int64_t sequences) {
    const unsigned n = static_cast<unsigned>(heads), m = static_cast<unsigned>(sequences), rest = index / n;
    head = static_cast<int>(index % n), sequence = static_cast<int>(rest % m), tile = static_cast<int>(rest / m);
  }
};

// 8 neighbouring rows, of which one chunk each is read at once, are in 8 different groups of 4 banks.
template <class Tile>
constexpr bool without_conflicts() {
  for (int chunk = 0; chunk < Tile::chunks; ++chunk)
    for (int first = 0; first < 16; first += 8) {
      unsigned groups = 0;
      for (int row = first; row < first + 8; ++row) groups |= 1u << Tile::place(row, chunk) / 16 % 8;
      if (groups != 0xff) return false;
    }
  return true;
}
static_assert(without_conflicts<Tile<bf16, 32, 16>>() && without_conflicts<Tile<bf16, 64, 16>>() &&
              without_conflicts<Tile<bf16, 96, 16>>() && without_conflicts<Tile<bf16, 128, 16>>() &&
              without_conflicts<Tile<bf16, 256, 16>>() && without_conflicts<Tile<float, 64, 16>>() &&
              without_conflicts<Tile<float, 128, 16>>());

// Rows of one of `heads` heads in global memory.
struct Rows {
  int rows, columns, stride;  // stride: elements from a row to the next
  __device__ __forceinline__ Rows(const Heads& s, int64_t heads)
      : rows(static_cast<int>(s.length)), columns(static_cast<int>(s.size)), stride(static_cast<int>(heads * s.size)) {}
};

// Starts to copy rows row .. row + N - 1; what lies outside of the matrix is zero.
template <int block = threads, class T, int D, int N>
__device__ __forceinline__ void fetch(Tile<T, D, N>& to, const T* from, const Rows& shape, int row) {
  constexpr int each = Tile<T, D, N>::each, chunks = D / each, step = block / chunks;
  const int c = static_cast<int>(threadIdx.x) % chunks, start = static_cast<int>(threadIdx.x) / chunks;
  if (start >= step) return;  // 96 columns: the last 8 of 128 threads have nothing to do
  const int end = c * each < shape.columns ? shape.rows - row : 0;
  const T* p = from + static_cast<int64_t>(row + start) * shape.stride + c * each;
  const SharedAddress tile = to.address();
  ENG_ROLL
  for (int r = start; r < N; r += step, p += static_cast<int64_t>(step) * shape.stride)
    copy_async<16>(tile + to.place(r, c), p, r < end);
}

// f(r, j, e) for each sum x[r][j][e] of this thread.
template <int R, int N, class F>
__device__ __forceinline__ void each_sum(float (&)[R][N][4], const F& f) {
  ENG_UNROLL
  for (int r = 0; r < R; ++r) {
    ENG_UNROLL
    for (int j = 0; j < N; ++j) {
      ENG_UNROLL
      for (int e = 0; e < 4; ++e) f(r, j, e);
    }
  }
}
// f(r, h) for each row of these sums that this thread has a part of: those with e / 2 == h.
template <int R, class F>
__device__ __forceinline__ void each_row(const F& f) {
  ENG_UNROLL
  for (int r = 0; r < R; ++r) {
    ENG_UNROLL
    for (int h = 0; h < 2; ++h) f(r, h);
  }
}
template <int R, int N>
__device__ __forceinline__ void clear(float (&x)[R][N][4]) {
  each_sum(x, [&](int r, int j, int e) { x[r][j][e] = 0; });
}

// Row and column of a sum, from the first of the R * 16 rows.
__device__ __forceinline__ int row_of(int r, int e) {
  return r * 16 + lane_index() / 4 + e / 2 * 8;
}
__device__ __forceinline__ int column_of(int j, int e) {
  return j * 8 + lane_index() % 4 * 2 + e % 2;
}

// Sums with hidden(row, column) become `value`.
template <int R, int N, class F>
__device__ __forceinline__ void hide(float (&x)[R][N][4], float value, const F& hidden) {
  each_sum(x, [&](int r, int j, int e) {
    if (hidden(row_of(r, e), column_of(j, e))) x[r][j][e] = value;
  });
}

// x becomes tanh(within * x), to about 2^-22.
__device__ __forceinline__ void squash(float& x, float within) {
  x = fmaf(2.0f, sigmoid(2.0f * within * x), -1.0f);
}

// s (R * 16, N) = rows row .. of a (.., D) by the rows of b (N, D).
template <int R, class T, int D, int A, int N>
__device__ __forceinline__ void row_products(float (&s)[R][N / 8][4], Tile<T, D, A>& a, int row, Tile<T, D, N>& b) {
  const int lane = lane_index();
  const SharedAddress left_tile = a.address(), right_tile = b.address();
  const int left_at = a.place(row + lane % 16, lane / 16), right_at = b.place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  clear(s);
  [[maybe_unused]] constexpr int steps = D == 64 ? 2 : 4;  // all of them need more registers than there are
  ENG_UNROLL_BY(steps)
  for (int c = 0; c < D / 8; c += 2) {
    uint32_t left[R][4];
    ENG_UNROLL
    for (int r = 0; r < R; ++r) ldmatrix<false>(left[r], left_tile + a.further(left_at, r * 16, c));
    ENG_UNROLL
    for (int j = 0; j < N / 16; ++j) {
      uint32_t right[4];
      ldmatrix<false>(right, right_tile + b.further(right_at, j * 16, c));
      ENG_UNROLL
      for (int r = 0; r < R; ++r)
        mma<T>(s[r][2 * j], left[r], right[0], right[1]), mma<T>(s[r][2 * j + 1], left[r], right[2], right[3]);
    }
  }
}

// sum (R * 16, C * 8) += p (R * 16, N) rounded to T, by columns 8 * chunk .. of b (N, D); chunk: a multiple of 8.
template <int R, int C, class T, int D, int N>
__device__ __forceinline__ void add_product(float (&sum)[R][C][4], const float (&p)[R][N / 8][4], Tile<T, D, N>& b,
                                            int chunk) {
  const int lane = lane_index(), right_at = b.place(lane % 16, lane / 16);
  const SharedAddress right_tile = b.address() + chunk * 16;
  ENG_UNROLL
  for (int c = 0; c < N / 16; ++c) {
    uint32_t left[R][4];
    ENG_UNROLL
    for (int r = 0; r < R; ++r) {
      const float(&low)[4] = p[r][2 * c], (&high)[4] = p[r][2 * c + 1];
      left[r][0] = pack<T>(low[0], low[1]), left[r][1] = pack<T>(low[2], low[3]);
      left[r][2] = pack<T>(high[0], high[1]), left[r][3] = pack<T>(high[2], high[3]);
    }
    ENG_UNROLL
    for (int j = 0; j < C; j += 2) {
      uint32_t right[4];
      ldmatrix<true>(right, right_tile + b.further(right_at, c * 16, j));
      ENG_UNROLL
      for (int r = 0; r < R; ++r)
        mma<T>(sum[r][j], left[r], right[0], right[1]), mma<T>(sum[r][j + 1], left[r], right[2], right[3]);
    }
  }
}

// For f32. For each four columns of D, a lane reads them of its 2 R rows of a and of each of its rows of b.
template <int R, int D, int A, int N>
__device__ __forceinline__ void row_products(float (&s)[R][N / 8][4], Tile<float, D, A>& a, int row,
                                             Tile<float, D, N>& b) {
  using Four = Pack<float, 4>;
  const int lane = lane_index(), left_at = a.place(row + lane / 4, 0);
  const int right_at[2] = {b.place(lane % 4 * 2, 0), b.place(lane % 4 * 2 + 1, 0)};
  clear(s);
  ENG_UNROLL_BY(2)
  for (int c = 0; c < D / 4; ++c) {
    Four left[R][2];
    each_row<R>(
        [&](int r, int half) { left[r][half] = a.template as<Four>(a.further(left_at, r * 16 + half * 8, c)); });
    ENG_UNROLL
    for (int j = 0; j < N / 8; ++j) {
      ENG_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Four right = b.template as<Four>(b.further(right_at[e], j * 8, c));
        ENG_UNROLL
        for (int d = 0; d < 4; ++d)
          each_row<R>([&](int r, int half) {
            float& sum = s[r][j][2 * half + e];
            sum = fmaf(left[r][half].at[d], right.at[d], sum);
          });
      }
    }
  }
}

// Sums of f32 by a tile have other columns than those of scores, so that a lane reads four at once: of the sums of its
// row `half` in r, number 4 q + d is that of column 16 q + 4 (lane % 4) + d.
template <int R, int C>
__device__ __forceinline__ float& sum_of(float (&sum)[R][C][4], int r, int half, int q, int d) {
  return sum[r][2 * q + d / 2][2 * half + d % 2];
}

// sum (R * 16, C * 8) += p (R * 16, N) by all columns of b (N, D). The four lanes of a row hand its p to each other. p
// turns by 8 columns each time, so that the loop is short and p stays in registers; at the end it is what it was.
template <int R, int C, int D, int N>
__device__ __forceinline__ void add_product(float (&sum)[R][C][4], float (&p)[R][N / 8][4], Tile<float, D, N>& b, int) {
  static_assert(C * 8 == D);
  using Four = Pack<float, 4>;
  const int right_at = lane_index() % 4 * 16;  // that of a row that is a multiple of 8
  ENG_ROLL
  for (int j = 0; j < N / 8; ++j) {
    ENG_UNROLL
    for (int n = 0; n < 8; ++n) {
      float left[R][2];
      each_row<R>(
          [&](int r, int half) { left[r][half] = __shfl_sync(0xffffffffu, p[r][0][2 * half + n % 2], n / 2, 4); });
      ENG_UNROLL
      for (int q = 0; q < D / 16; ++q) {
        const Four right = b.template as<Four>(b.further(right_at, j * 8 + n, 4 * q ^ n));
        ENG_UNROLL
        for (int d = 0; d < 4; ++d)
          each_row<R>([&](int r, int half) {
            float& to = sum_of(sum, r, half, q, d);
            to = fmaf(left[r][half], right.at[d], to);
          });
      }
    }
    each_row<R>([&](int r, int half) {
      ENG_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        const float first = p[r][0][e];
        ENG_UNROLL
        for (int k = 1; k < N / 8; ++k) p[r][k - 1][e] = p[r][k][e];
        p[r][N / 8 - 1][e] = first;
      }
    });
  }
}

// Writes sums, each times factor(r, half) of its row, to rows from + row .. of `to`, columns 8 * chunk .., as T. They
// pass through rows row .. of `space`, which nobody but this warp uses any more, so that 16 bytes are written at once.
template <int R, int C, class F, class T, int D, int A>
__device__ __forceinline__ void store_sums(const float (&sum)[R][C][4], const F& factor, Tile<T, D, A>& space, int row,
                                           T* to, const Rows& shape, int from, int chunk) {
  const int lane = lane_index();
  __syncwarp();
  ENG_UNROLL
  for (int j = 0; j < C; ++j)
    each_row<R>([&](int r, int half) {
      space.template as<uint32_t>(space.place(row + row_of(r, 2 * half), j) + lane % 4 * 4) =
          pack<T>(sum[r][j][2 * half] * factor(r, half), sum[r][j][2 * half + 1] * factor(r, half));
    });
  __syncwarp();
  using Words = Pack<uint32_t, 4>;
  ENG_ROLL
  for (int k = lane; k < R * 16 * C; k += 32) {
    const int r = row + k / C, c = k % C, column = (chunk + c) * 8;
    if (from + r < shape.rows && column < shape.columns)
      *reinterpret_cast<Words*>(to + static_cast<int64_t>(from + r) * shape.stride + column) =
          space.template as<Words>(space.place(r, c));
  }
}

// For f32, straight from registers: four lanes write 64 bytes of a row.
template <int R, int C, class F, int D, int A>
__device__ __forceinline__ void store_sums(float (&sum)[R][C][4], const F& factor, Tile<float, D, A>&, int row,
                                           float* to, const Rows& shape, int from, int) {
  each_row<R>([&](int r, int half) {
    const int i = from + row + row_of(r, 2 * half);
    ENG_UNROLL
    for (int q = 0; q < C / 2; ++q) {
      const int column = 16 * q + lane_index() % 4 * 4;
      Pack<float, 4> out;
      ENG_UNROLL
      for (int d = 0; d < 4; ++d) out.at[d] = sum_of(sum, r, half, q, d) * factor(r, half);
      if (i < shape.rows && column < shape.columns)
        store_pack(to + static_cast<int64_t>(i) * shape.stride + column, out);
    }
  });
}

// Starts to copy N numbers of rows row .. of a head; zeros behind the last row. By the threads from `by` on.
template <int block = threads, int N>
__device__ __forceinline__ void fetch_numbers(float (&to)[N], const float* from, int rows, int row, int by) {
  static_assert(N <= block);
  const int i = static_cast<int>(threadIdx.x) - by;
  if (i >= 0 && i < N) copy_async<4>(shared_address(to + i), from + row + i, row + i < rows);
}

// Starts or ends of a tile's rows (find_bounds_of), if the call has them. Rows behind the last one have its value.
template <int rows, bool bounded>
struct Bounds {
  int32_t bounds[rows];
  // Starts to copy those of rows `row` .., from all of `length`.
  __device__ __forceinline__ void fetch_bounds(const int32_t* all, int length, int row) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < rows) copy_async<4>(shared_address(bounds + i), all + (row + i < length ? row + i : length - 1), true);
  }
};
template <int rows>
struct Bounds<rows, false> {};

// Launches kernel K of (s, p): a block for each tile of R times 64 rows of each of `heads` heads, with Tiles in shared
// memory.
template <auto K, class Tiles, int R, class P>
void launch_tiles(const Heads& s, int64_t heads, const P& p, cudaStream_t stream) {
  static_assert(sizeof(Tiles) <= 99 << 10, "a block of sm_86 has no more");
  const int64_t tiles = (s.length + tile_rows<R> - 1) / tile_rows<R>;
  launch<K>(static_cast<unsigned>(tiles * s.batch * heads), threads, sizeof(Tiles), stream, s, p);
}

}  // namespace attention
}  // namespace cuda
