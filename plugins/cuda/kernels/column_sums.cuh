// SPDX-License-Identifier: Apache-2.0
// Sums of columns over many rows: of slices of rows, all at once, and then of the slices. How rows are cut depends on
// their number alone, so that the plan and the bits are those of any GPU.
#pragma once

#include "../../common/cuda/device.cuh"

namespace cuda {
namespace column_sums {

constexpr int lanes = 32, groups = 8;  // of a block: threads beside and below each other

// Rows cut into slices: of at least `least` rows, and at most `most` of them.
struct Slices {
  int64_t rows, count;  // rows of one
  Slices(int64_t all, int64_t least, int64_t most) : rows((all + most - 1) / most) {
    if (rows < least) rows = least;
    count = all ? (all + rows - 1) / rows : 1;
  }
};
inline Slices slices_of(int64_t rows) {
  return {rows, 64, 64};
}

template <class T, class S>
struct Rows {
  const T* x;
  int64_t rows, columns, slice;  // slice: rows of one
  const S* acc;                  // may be null
  S* out;                        // a row for each slice
};

// A block sums W * lanes columns of a slice: a group every eighth row, in order; then the groups in order.
template <int W, class T, class S>
__global__ void sum(Rows<T, S> r) {
  using Sums = float[groups][lanes * W];
  Sums& sums = shared<Sums>();
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int64_t from = static_cast<int64_t>(blockIdx.x) * lanes * W, column = from + lane * W;
  const int64_t first = blockIdx.y * r.slice, last = first + r.slice < r.rows ? first + r.slice : r.rows;
  float mine[W] = {};
  if (column < r.columns) {
    ENG_UNROLL_BY(4)
    for (int64_t row = first + group; row < last; row += groups) {
      float v[W];
      load(r.x + row * r.columns + column, v);
      for (int k = 0; k < W; ++k) mine[k] += v[k];
    }
  }
  for (int k = 0; k < W; ++k) sums[group][lane * W + k] = mine[k];
  __syncthreads();
  const int64_t at = from + threadIdx.x;
  if (static_cast<int>(threadIdx.x) >= lanes * W || at >= r.columns) return;
  float total = 0;
  for (int g = 0; g < groups; ++g) total += sums[g][threadIdx.x];
  if (r.acc) total += to_f32(r.acc[at]);
  from_f32(total, r.out[blockIdx.y * r.columns + at]);
}
template <class T, class S>
void launch_sum(const Rows<T, S>& r, int64_t slices, cudaStream_t stream) {
  constexpr int wide = widest<T> < groups ? widest<T> : groups;  // so that a block has a thread for each column
  constexpr int64_t filling = 256;                               // blocks
  const auto go = [&]<int W>() {
    launch<sum<W, T, S>>(
        dim3(static_cast<unsigned>((r.columns + lanes * W - 1) / (lanes * W)), static_cast<unsigned>(slices)),
        lanes * groups, sizeof(float[groups][lanes * W]), stream, r);
  };
  const bool vectors = r.columns % wide == 0 && r.columns / (lanes * wide) * slices >= filling;
  vectors ? go.template operator()<wide>() : go.template operator()<1>();
}
// out = [acc +] the sums of the columns of x (rows, columns), of which there are few rows.
template <class T, class S>
void all(const T* x, int64_t rows, int64_t columns, const S* acc, S* out, cudaStream_t stream) {
  launch_sum(Rows<T, S>{x, rows, columns, rows, acc, out}, 1, stream);
}

// Bytes of scratch for the slices.
inline uint64_t scratch(int64_t rows, int64_t columns) {
  const int64_t slices = slices_of(rows).count;
  return slices > 1 ? static_cast<uint64_t>(slices * columns) * sizeof(float) : 0;
}
// out = [acc +] the sums of the columns of x (rows, columns), of any number of rows. `parts`: the scratch.
template <class T, class S>
void run(const T* x, int64_t rows, int64_t columns, const S* acc, S* out, float* parts, cudaStream_t stream) {
  const Slices slices = slices_of(rows);
  if (slices.count == 1) return all(x, rows, columns, acc, out, stream);
  launch_sum(Rows<T, float>{x, rows, columns, slices.rows, nullptr, parts}, slices.count, stream);
  all(parts, slices.count, columns, acc, out, stream);
}

}  // namespace column_sums
}  // namespace cuda
