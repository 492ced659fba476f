// SPDX-License-Identifier: Apache-2.0
// Products of matrices by plain threads: what runs where no library computes them. Sums are in f32, in the order of k.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "library.hpp"

namespace cuda {
namespace product {

constexpr int tile = 32, block = 256, each = tile * tile / block;

struct Tiles {
  float a[tile][tile + 1], b[tile][tile + 1];
};

// A, B, C: the types of a, of b and bias, of c and acc. acc may be c.
template <class A, class B, class C>
__global__ void multiply(library::Product p, library::Operands o) {
  Tiles& tiles = shared<Tiles>();
  const A* const a = static_cast<const A*>(o.a);
  const B *const b = static_cast<const B*>(o.b), *const bias = static_cast<const B*>(o.bias);
  const C* const acc = static_cast<const C*>(o.acc);
  const int64_t row = static_cast<int64_t>(blockIdx.y) * tile, column = static_cast<int64_t>(blockIdx.x) * tile;
  const int x = static_cast<int>(threadIdx.x) % tile, y = static_cast<int>(threadIdx.x) / tile;
  float sum[each] = {};
  for (int64_t k = 0; k < p.k; k += tile) {
    // Neighbouring threads read neighbours in memory.
    for (int r = y; r < tile; r += block / tile) {
      const int64_t am = p.ta ? row + x : row + r, ak = p.ta ? k + r : k + x;
      const float av = am < p.m && ak < p.k ? to_f32(a[p.ta ? ak * p.a_stride + am : am * p.a_stride + ak]) : 0.0f;
      const int64_t bn = p.tb ? column + r : column + x, bk = p.tb ? k + x : k + r;
      const float bv = bn < p.n && bk < p.k ? to_f32(b[p.tb ? bn * p.k + bk : bk * p.n + bn]) : 0.0f;
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
    const int64_t r = row + y + e * (block / tile), at = r * p.c_stride + column + x;
    if (r >= p.m || column + x >= p.n) continue;
    float out = sum[e];
    if (bias) out += to_f32(bias[column + x]);
    if (acc) out += to_f32(acc[at]);
    from_f32(out, static_cast<C*>(o.c)[at]);
  }
}

constexpr int64_t most_rows = int64_t{65535} * tile;  // of a grid

template <class A, class B, class C>
void by_threads(const library::Product& p, const library::Operands& o, cudaStream_t stream) {
  library::Product part = p;
  if (!p.a_stride) part.a_stride = p.ta ? p.m : p.k;
  if (!p.c_stride) part.c_stride = p.n;
  // Rows beyond what a grid has: in parts, where a is read by rows.
  for (int64_t first = 0; first < p.m; first += most_rows) {
    part.m = p.m - first < most_rows ? p.m - first : most_rows;
    const C* const acc = static_cast<const C*>(o.acc);
    const library::Operands from{static_cast<const A*>(o.a) + first * part.a_stride, o.b,
                                 acc ? acc + first * part.c_stride : nullptr, o.bias,
                                 static_cast<C*>(o.c) + first * part.c_stride};
    launch<multiply<A, B, C>>(
        dim3(static_cast<unsigned>((p.n + tile - 1) / tile), static_cast<unsigned>((part.m + tile - 1) / tile)), block,
        sizeof(Tiles), stream, part, from);
  }
}

// A product, and what the library chose for it, or null. Threads compute what the library does not take.
struct Chosen {
  library::Product p;
  std::shared_ptr<const library::Algorithm> algorithm;

  void run(const library::Operands& o, void* scratch, cudaStream_t stream) const {
    if (algorithm && algorithm->takes(o)) return algorithm->run(o, scratch, stream);
    by_types(p.type, p.result, [&]<class T, class C>(T, C) { by_threads<T, T, C>(p, o, stream); });
  }
};
inline Chosen choose(void* device, const library::Product& p, uint64_t scratch) {
  return {p, library::prepare(device, p, scratch)};
}

}  // namespace product
}  // namespace cuda
