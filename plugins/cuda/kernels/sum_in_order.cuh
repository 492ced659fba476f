// SPDX-License-Identifier: Apache-2.0
// A sum whose order is that of the CPU, by one block.
#pragma once

#include "../../common/cuda/device.cuh"

namespace cuda {

// The first warp adds a tile, each other thread brings 4 elements of the next one near.
constexpr int order_tile = 1024;
constexpr unsigned order_block = warp + order_tile / 4;  // threads of the launch
struct OrderTiles {                                      // shared memory of the launch
  double at[2][order_tile];
};

// The sum of all n, in order, in f64, which thread 0 has. What the block wrote before, all of it sees afterwards.
__device__ __forceinline__ double sum_in_order(const float* x, int64_t n) {
  OrderTiles& tiles = shared<OrderTiles>();
  const int mine = (static_cast<int>(threadIdx.x) - static_cast<int>(warp)) * 4;
  // Behind n are zeros, which leave the sum as it is: a sum that begins with +0 is never -0.
  const auto fetch = [&](double* tile, int64_t from) {
    float near[4] = {};
    if (from + 4 <= n)
      load(x + from, near);
    else
      for (int k = 0; k < 4 && from + k < n; ++k) near[k] = x[from + k];
    for (int k = 0; k < 4; k += 2) store_pack(tile + k, Pack<double, 2>{near[k], near[k + 1]});
  };
  double sum = 0;
  if (mine >= 0) fetch(tiles.at[0] + mine, mine);
  __syncthreads();
  // The next 16 elements are read before these are added: an addition waits for the one before it, and for no read.
  constexpr int ahead = 16, pairs = ahead / 2;
  const auto read = [](Pack<double, 2>(&to)[pairs], const double* from) {
    for (int k = 0; k < pairs; ++k) to[k] = load_pack<2>(from + 2 * k);
  };
  const auto add = [&](const Pack<double, 2>(&those)[pairs]) {
    for (int k = 0; k < ahead; ++k) sum += those[k / 2].at[k % 2];
  };
  int turn = 0;
  for (int64_t from = 0; from < n; from += order_tile, turn ^= 1) {
    if (mine >= 0) fetch(tiles.at[turn ^ 1] + mine, from + order_tile + mine);
    if (threadIdx.x == 0) {
      const double* const tile = tiles.at[turn];
      const int count = static_cast<int>(n - from < order_tile ? n - from : order_tile);
      Pack<double, 2> now[pairs], next[pairs];
      read(now, tile);
      for (int i = 0; i < count; i += 2 * ahead) {
        read(next, tile + i + ahead), add(now);
        read(now, tile + (i + 2 * ahead) % order_tile), add(next);
      }
    }
    __syncthreads();
  }
  return sum;
}

}  // namespace cuda
