// SPDX-License-Identifier: Apache-2.0
// Causal attention in tiles (FlashAttention-2, Dao 2023), of 16-bit elements on tensor cores: the scores of a tile live
// in registers, and the sums are scaled anew when a larger score appears.
#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

template <class T, int D, int R, int N, bool bounded>
struct ForwardTiles : Bounds<tile_rows<R>, bounded> {
  Tile<T, D, tile_rows<R>> q;
  Tile<T, D, N> k[2], v[2];
};

// Grid: tiles of queries, the last ones first, for they have the most keys; within that, sequences; within that, heads.
template <class T, int D, int R, int N, bool bounded, bool capped>
__global__ void __launch_bounds__(threads) forward_tile(Heads s, Forward<T> p) {
  using Tiles = ForwardTiles<T, D, R, N, bounded>;
  constexpr int rows = tile_rows<R>;
  Tiles& tiles = shared<Tiles>();
  const Turn turn(blockIdx.x, s.heads, s.batch);
  const int h = turn.head, b = turn.sequence, kv = h / static_cast<int>(s.heads / s.kv_heads);
  const Rows queries(s, s.heads), keys(s, s.kv_heads);
  const int length = queries.rows, first = ((length + rows - 1) / rows - 1 - turn.tile) * rows;
  const int row = warp_index() * 16 * R;  // the first one of this warp
  const T *q = p.q + s.query(b, 0, h), *k = p.k + s.key(b, 0, kv), *v = p.v + s.key(b, 0, kv);
  const int passes = ((first + rows < length ? first + rows : length) + N - 1) / N;
  const float scale = capped ? s.cap : s.scale, factor = scale * log2_e;
  const int begin = bounded ? p.starts[b * s.length + first] / N : 0;  // no row sees tiles of keys before

  fetch(tiles.q, q, queries, first);
  fetch(tiles.k[begin % 2], k, keys, begin * N), fetch(tiles.v[begin % 2], v, keys, begin * N);
  if constexpr (bounded) tiles.fetch_bounds(p.starts + b * s.length, length, first);
  commit_async();
  float sum[R][D / 8][4], top[R][2], weight[R][2];  // weight: sum of exp2(factor * (score - top))
  clear(sum);
  constexpr float lowest = bounded ? -1e30f : -INFINITY;  // finite: a row may meet no key that it sees for a while
  each_row<R>([&](int r, int e) { top[r][e] = lowest, weight[r][e] = 0; });
  for (int t = begin; t < passes; ++t) {
    wait_async<0>();
    __syncthreads();  // tile t is there, and nobody reads tile t - 1 any more
    if (t + 1 < passes)
      fetch(tiles.k[(t + 1) % 2], k, keys, (t + 1) * N), fetch(tiles.v[(t + 1) % 2], v, keys, (t + 1) * N);
    commit_async();
    const int ahead = t * N - (first + row);  // of the first key before the first row
    if (ahead > 16 * R - 1) continue;         // all keys come after all rows
    if constexpr (bounded)
      if ((t + 1) * N <= tiles.bounds[row]) continue;
    float scores[R][N / 8][4];
    row_products(scores, tiles.q, row, tiles.k[t % 2]);
    if constexpr (capped) each_sum(scores, [&](int r, int j, int e) { squash(scores[r][j][e], s.within); });
    if (ahead + N - 1 > 0) hide(scores, -INFINITY, [&](int i, int j) { return ahead + j > i; });
    if constexpr (bounded)
      if (t * N < tiles.bounds[row + 16 * R - 1])
        hide(scores, -INFINITY, [&](int i, int j) { return t * N + j < tiles.bounds[row + i]; });
    each_row<R>([&](int r, int half) {
      float most = top[r][half], part = 0;
      ENG_UNROLL
      for (int j = 0; j < N / 8; ++j) most = fmaxf(most, fmaxf(scores[r][j][2 * half], scores[r][j][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float shrink = exp2f(factor * (top[r][half] - most)), base = -factor * most;
      top[r][half] = most;
      ENG_UNROLL
      for (int j = 0; j < N / 8; ++j) {
        part += scores[r][j][2 * half] = exp2f(fmaf(factor, scores[r][j][2 * half], base));
        part += scores[r][j][2 * half + 1] = exp2f(fmaf(factor, scores[r][j][2 * half + 1], base));
      }
      weight[r][half] = fmaf(weight[r][half], shrink, part);
      ENG_UNROLL
      for (int j = 0; j < D / 8; ++j) sum[r][j][2 * half] *= shrink, sum[r][j][2 * half + 1] *= shrink;
    });
    add_product(sum, scores, tiles.v[t % 2], 0);
  }

  each_row<R>([&](int r, int half) {
    float w = weight[r][half];  // of 4 lanes
    w += __shfl_xor_sync(0xffffffffu, w, 1);
    w += __shfl_xor_sync(0xffffffffu, w, 2);
    const int i = first + row + row_of(r, 2 * half);
    if (lane_index() % 4 == 0 && i < length) p.lse[s.row(b, i, h)] = fmaf(top[r][half], scale, logf(w));
    weight[r][half] = 1.0f / w;
  });
  const auto factor_of = [&](int r, int half) { return weight[r][half]; };
  store_sums(sum, factor_of, tiles.q, row, p.o + s.query(b, 0, h), queries, first, 0);
}

template <class T>
void forward_tiled(const Heads& s, const Tiling& tiling, const Forward<T>& p, cudaStream_t stream) {
  by_tiling<T>(tiling, p.starts, s.cap != 0, [&]<Tiling t, bool bounded, bool capped>() {
    constexpr int keys = bounded && t.width == 96 ? 48 : t.keys_forward;  // 64 need 2 registers too many on sm_90
    launch_tiles<forward_tile<T, t.width, t.forward, keys, bounded, capped>,
                 ForwardTiles<T, t.width, t.forward, keys, bounded>, t.forward>(s, s.heads, p, stream);
  });
}
template void forward_tiled(const Heads&, const Tiling&, const Forward<bf16>&, cudaStream_t);
template void forward_tiled(const Heads&, const Tiling&, const Forward<f16>&, cudaStream_t);
template void forward_tiled(const Heads&, const Tiling&, const Forward<float>&, cudaStream_t);

}  // namespace attention
}  // namespace cuda
