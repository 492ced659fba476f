// SPDX-License-Identifier: Apache-2.0
// Products of rows with the weights of their experts, and the gradient of these weights. Where the rows of an expert
// begin is known on the device alone, so a block finds its expert itself. It makes a tile of the result: in 16 bits on
// tensor cores, in f32 by threads. The terms of a sum are added in their order, so the bits depend on no grid.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/tiles.hpp"
#include "../ops.hpp"
#include "list.hpp"

namespace moe {
namespace on_cuda {

using namespace cuda;

constexpr int depth = 32, block = tile_block;  // depth: terms that are read at once

// A part of a factor in shared memory, as it lies in memory: by_terms: a line for each row or column of the tile, the
// terms beside each other; else a line for each term. The padding makes lines begin in different banks.
template <class T, bool by_terms>
struct Side {
  static constexpr int lines = by_terms ? tile : depth, length = by_terms ? depth : tile, pad = tile_pad<T>;
  alignas(16) T at[lines][length + pad];
};

// A factor in memory. With `order`, its line r is that of the token of pair order[r].
template <class T, bool by_terms>
struct Factor {
  const T* at;
  int64_t stride;  // elements from a line to the next
  const int32_t* order = nullptr;
  int32_t k = 1;  // experts of a token

  // Starts to read the part that begins at this row or column of the tile, and at this term; zeros where they end.
  template <bool vectors>
  __device__ void read(Side<T, by_terms>& to, int64_t place, int64_t places, int64_t term, int64_t terms) const {
    using S = Side<T, by_terms>;
    const int64_t line = by_terms ? place : term, lines = by_terms ? places : terms;
    const int64_t column = by_terms ? term : place, columns = by_terms ? terms : places;
    constexpr int width = vectors ? S::pad : 1, per = S::length / width;
    ENG_UNROLL_BY((vectors ? 2 : 1))
    for (int i = static_cast<int>(threadIdx.x); i < S::lines * per; i += block) {
      const int l = i / per, c = i % per * width;
      const bool valid = line + l < lines && column + c < columns;
      const int64_t row = valid && order ? order[line + l] / k : line + l;
      const T* const from = valid ? at + row * stride + column + c : at;
      if constexpr (vectors)
        copy_async<16>(shared_address(&to.at[l][c]), from, valid);
      else
        to.at[l][c] = valid ? *from : T{};
    }
  }
};

// Two parts: one is read while the other one is used.
template <class T, bool a_by_terms, bool b_by_terms>
struct Tiles {
  Side<T, a_by_terms> a[2];
  Side<T, b_by_terms> b[2];
};

// c (rows .. row_end, columns) = [acc +] a b, one tile of it, over the terms from `term` to `terms`.
template <bool vectors, class T, class C, bool a_by_terms, bool b_by_terms>
__device__ __forceinline__ void multiply(const Factor<T, a_by_terms>& a, const Factor<T, b_by_terms>& b, int64_t row,
                                         int64_t row_end, int64_t column, int64_t columns, int64_t term, int64_t terms,
                                         const C* acc, C* c) {
  auto& tiles = shared<Tiles<T, a_by_terms, b_by_terms>>();
  Sums<T> sums;
  const auto read = [&](int part, int64_t t) {
    a.template read<vectors>(tiles.a[part], row, row_end, t, terms);
    b.template read<vectors>(tiles.b[part], column, columns, t, terms);
  };
  int part = 0;
  if (term < terms) read(part, term);
  commit_async();
  ENG_ROLL
  for (; term < terms; term += depth, part ^= 1) {
    if (term + depth < terms) read(part ^ 1, term + depth);
    commit_async();
    wait_async<1>();
    __syncthreads();
    sums.template add<a_by_terms, b_by_terms, depth>(tiles.a[part].at, tiles.b[part].at);
    __syncthreads();
  }
  sums.each([&](int i, int j, float sum) {
    if (row + i >= row_end || column + j >= columns) return;
    const int64_t at = (row + i) * columns + column + j;
    from_f32(acc ? to_f32(acc[at]) + sum : sum, c[at]);
  });
}

// The products of all experts: c = a b, of rows with the weights of their experts, or for each expert of its rows.
template <class T, class C, bool rows, bool b_by_terms>
struct Products {
  Factor<T, rows> a;
  Factor<T, b_by_terms> b;
  const int32_t* offsets;
  const C* acc;  // may be null
  C* c;
  int64_t experts, m, n, k;  // m: rows of an expert's c, if `rows` is false; k: terms, if it is true
};
// blockIdx.x: a tile of rows, counted over all experts, each of which begins a new one.
template <bool vectors, class T, bool b_by_terms>
__global__ void __launch_bounds__(block, 4) multiply_rows(Products<T, T, true, b_by_terms> p) {
  int64_t tiles = blockIdx.x, expert = 0, first = 0;  // tiles: those of the expert that come before this one
  for (;; ++expert) {
    if (expert == p.experts) return;
    first = p.offsets[expert];
    const int64_t count = (p.offsets[expert + 1] - first + tile - 1) / tile;
    if (tiles < count) break;
    tiles -= count;
  }
  p.b.at += expert * p.n * p.k;
  ENG_ROLL
  for (int64_t column = int64_t{blockIdx.y} * tile; column < p.n; column += int64_t{gridDim.y} * tile)
    multiply<vectors>(p.a, p.b, first + tiles * tile, p.offsets[expert + 1], column, p.n, 0, p.k, p.acc, p.c);
}
template <bool vectors, class T, class C>
__global__ void __launch_bounds__(block, 4) multiply_experts(Products<T, C, false, false> p) {
  for (int64_t e = blockIdx.z; e < p.experts; e += gridDim.z)
    for (int64_t row = int64_t{blockIdx.y} * tile; row < p.m; row += int64_t{gridDim.y} * tile) {
      const int64_t at = e * p.m * p.n;
      multiply<vectors>(p.a, p.b, row, p.m, int64_t{blockIdx.x} * tile, p.n, p.offsets[e], p.offsets[e + 1],
                        p.acc ? p.acc + at : nullptr, p.c + at);
    }
}

// ---- ops -------------------------------------------------------------------------------------------------------

// A grid with `x`, and at most so many tiles and experts as a grid can have: kernels go on in strides.
dim3 grid_of(int64_t x, int64_t columns, int64_t experts) {
  const auto most = [](int64_t n) { return static_cast<unsigned>(n < 65535 ? n : 65535); };
  return {static_cast<unsigned>(x), most((columns + tile - 1) / tile), most(experts)};
}
// True if rows of two tensors, of m and n elements, can be read 16 bytes at a time.
bool in_vectors(const Call& c, const Args& a, int64_t m, int64_t n) {
  return ((m | n) * common::dtype_size(c.in[0].dtype)) % 16 == 0 &&
         (reinterpret_cast<uintptr_t>(a.in<void>(0)) | reinterpret_cast<uintptr_t>(a.in<void>(1))) % 16 == 0;
}

template <bool forward>
struct Linear {
  static constexpr const char* op = forward ? MOE_OP_LINEAR : MOE_OP_LINEAR_INPUT_GRAD;
  static void check(const Call& c) {
    need_float(c.in[0], "rows"), need_type(c.in[1], c.in[0].dtype, "w"), need_type(c.out[0], c.in[0].dtype, "y");
    need(rows(c.out[0]) / tile + c.in[1].dims[0] < int64_t{1} << 31, "there are too many rows for one grid");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t k = columns(c.in[0]), n = columns(c.out[0]), experts = c.in[1].dims[0];
    by_type(c.in[0].dtype, [&]<class T>(T) {
      Products<T, T, true, forward> p{
          {a.in<T>(0), k}, {a.in<T>(1), forward ? k : n}, a.in<int32_t>(2), nullptr, a.out<T>(0), experts, 0, n, k};
      if (c.has(3)) p.a.order = a.in<int32_t>(3), p.a.k = static_cast<int32_t>(columns(c.in[3]));
      const auto kernel = in_vectors(c, a, k, n) ? launch<multiply_rows<true, T, forward>, decltype(p)>
                                                 : launch<multiply_rows<false, T, forward>, decltype(p)>;
      kernel(grid_of(rows(c.out[0]) / tile + experts, n, 1), block, sizeof(Tiles<T, true, forward>), stream, p);
    });
  }
};

struct LinearWeightGrad {
  static constexpr const char* op = MOE_OP_LINEAR_WEIGHT_GRAD;
  static void check(const Call& c) {
    need_float(c.in[0], "dy"), need_type(c.in[1], c.in[0].dtype, "x"), need_sum(c, c.in[0].dtype, 0, "dw", 3);
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t m = columns(c.in[0]), n = columns(c.in[1]), experts = c.out[0].dims[0];
    by_types(c.in[0].dtype, c.out[0].dtype, [&]<class T, class C>(T, C) {
      const Products<T, C, false, false> p{
          {a.in<T>(0), m}, {a.in<T>(1), n}, a.in<int32_t>(2), a.in<C>(3), a.out<C>(0), experts, m, n, 0};
      const auto kernel = in_vectors(c, a, m, n) ? launch<multiply_experts<true, T, C>, Products<T, C, false, false>>
                                                 : launch<multiply_experts<false, T, C>, Products<T, C, false, false>>;
      kernel(grid_of((n + tile - 1) / tile, m, experts), block, sizeof(Tiles<T, false, false>), stream, p);
    });
  }
};

}  // namespace on_cuda

void add_product(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Linear<true>>, &kernel<Linear<false>>, &kernel<LinearWeightGrad>});
}

}  // namespace moe
