// SPDX-License-Identifier: Apache-2.0
// Products of matrices by plain threads: what runs where no library computes them. Sums are in f32, in the order of k.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "library.hpp"

namespace cuda {
namespace product {

constexpr int tile = 32, block = 256, each = tile * tile / block;

// c (M, N) = a b [+ acc] [+ bias of each column]. a is (M, K), or (K, M) if ta; b is (K, N), or (N, K) if tb.
template <class A, class B, class C>
struct Matrices {
  const A* a;
  const B* b;
  const C* acc;   // may be null; may be c
  const B* bias;  // may be null
  C* c;
  int64_t m, n, k;
  bool ta, tb;
  int64_t a_stride = 0;  // elements from one row of a to the next; 0: as many as it has
};

struct Tiles {
  float a[tile][tile + 1], b[tile][tile + 1];
};

template <class A, class B, class C>
__global__ void multiply(Matrices<A, B, C> p) {
  Tiles& tiles = shared<Tiles>();
  const int64_t row = static_cast<int64_t>(blockIdx.y) * tile, column = static_cast<int64_t>(blockIdx.x) * tile;
  const int x = static_cast<int>(threadIdx.x) % tile, y = static_cast<int>(threadIdx.x) / tile;
  float sum[each] = {};
  for (int64_t k = 0; k < p.k; k += tile) {
    // Neighbouring threads read neighbours in memory.
    for (int r = y; r < tile; r += block / tile) {
      const int64_t am = p.ta ? row + x : row + r, ak = p.ta ? k + r : k + x;
      const float av = am < p.m && ak < p.k ? to_f32(p.a[p.ta ? ak * p.a_stride + am : am * p.a_stride + ak]) : 0.0f;
      const int64_t bn = p.tb ? column + r : column + x, bk = p.tb ? k + x : k + r;
      const float bv = bn < p.n && bk < p.k ? to_f32(p.b[p.tb ? bn * p.k + bk : bk * p.n + bn]) : 0.0f;
      (p.ta ? tiles.a[x][r] : tiles.a[r][x]) = av;  // [m][k]
      (p.tb ? tiles.b[x][r] : tiles.b[r][x]) = bv;  // [k][n]
    }
    __syncthreads();
    for (int i = 0; i < tile; ++i) {
      const float bv = tiles.b[i][x];
      for (int e = 0; e < each; ++e) sum[e] = fmaf(tiles.a[y + e * (block / tile)][i], bv, sum[e]);
    }
    __syncthreads();
  }
  for (int e = 0; e < each; ++e) {
    const int64_t r = row + y + e * (block / tile), at = r * p.n + column + x;
    if (r >= p.m || column + x >= p.n) continue;
    float out = sum[e];
    if (p.bias) out += to_f32(p.bias[column + x]);
    if (p.acc) out += to_f32(p.acc[at]);
    from_f32(out, p.c[at]);
  }
}

constexpr int64_t most_rows = int64_t{65535} * tile;  // of a grid

template <class A, class B, class C>
void run(const Matrices<A, B, C>& p, cudaStream_t stream) {
  // Rows beyond what a grid has: in parts, where a is read by rows.
  for (int64_t first = 0; first < p.m; first += most_rows) {
    Matrices<A, B, C> part = p;
    part.m = p.m - first < most_rows ? p.m - first : most_rows;
    if (!p.a_stride) part.a_stride = p.ta ? p.m : p.k;
    part.a += first * part.a_stride, part.c += first * p.n;
    if (part.acc) part.acc += first * p.n;
    launch<multiply<A, B, C>>(
        dim3(static_cast<unsigned>((p.n + tile - 1) / tile), static_cast<unsigned>((part.m + tile - 1) / tile)), block,
        sizeof(Tiles), stream, part);
  }
}

// By the library, if it takes the product and these addresses.
template <class T, class C>
void run(const Matrices<T, T, C>& p, const library::Algorithm* algorithm, void* scratch, cudaStream_t stream) {
  const library::Operands o{p.a, p.b, p.acc, p.bias, p.c};
  if (algorithm && algorithm->takes(o))
    algorithm->run(o, scratch, stream);
  else
    run(p, stream);
}

}  // namespace product
}  // namespace cuda
