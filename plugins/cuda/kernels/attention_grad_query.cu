// SPDX-License-Identifier: Apache-2.0
// The first half of the gradient of attention, in tiles: delta = rowsum(do o) and dq. The second half computes
// the scores once more, so that each sum has one owner and one order: no atomics, and no scratch that grows with T^2.
#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

template <class T, int D, int R, int N, bool bounded>
struct GradQueryTiles : Bounds<tile_rows<R>, bounded> {
  Tile<T, D, tile_rows<R>> q, dout;
  Tile<T, D, N> k[2], v[2];
  float lse[tile_rows<R>], delta[tile_rows<R>];
};

// `lanes` of a warp, a power of two, have one row: 16 bytes each. All `n` rows, in strides of the grid.
template <class T>
__global__ void row_deltas(Heads s, int64_t n, int lanes, const T* dout, const T* o, float* deltas) {
  constexpr int wide = widest<T>;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (blockDim.x / warp);
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * (blockDim.x / warp) + warp_index();
  const int each = 32 / lanes, column = lane_index() % lanes * wide;
  for (int64_t first = mine * each; first < n; first += warps * each) {
    const int64_t i = first + lane_index() / lanes;
    float sum = 0;
    if (i < n && column < s.size) {
      float x[wide], y[wide];
      load<wide, Nan::any>(dout + i * s.size + column, x), load<wide, Nan::any>(o + i * s.size + column, y);
      for (int e = 0; e < wide; ++e) sum = fmaf(x[e], y[e], sum);
    }
    for (int by = lanes / 2; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    const int64_t h = i % s.heads, t = i / s.heads % s.length, b = i / s.heads / s.length;
    if (i < n && column == 0) deltas[s.row(b, t, h)] = sum;
  }
}

// P = exp(scale q k^T - lse);  dS = P (do v^T - delta);  dq = scale dS k. Of capped scores, dS is times their slope.
// The grid is that of the forward.
template <class T, int D, int R, int N, bool bounded, bool capped>
__global__ void __launch_bounds__(threads) grad_query_tile(Heads s, Grad<T> of) {
  using Tiles = GradQueryTiles<T, D, R, N, bounded>;
  constexpr int rows = tile_rows<R>;
  Tiles& tiles = shared<Tiles>();
  const Turn turn(blockIdx.x, s.heads, s.batch);
  const int h = turn.head, b = turn.sequence, kv = h / static_cast<int>(s.heads / s.kv_heads);
  const Rows queries(s, s.heads), keys(s, s.kv_heads);
  const int length = queries.rows, first = ((length + rows - 1) / rows - 1 - turn.tile) * rows;
  const int row = warp_index() * 16 * R;
  const T *q = of.q + s.query(b, 0, h), *dout = of.dout + s.query(b, 0, h);
  const T *k = of.k + s.key(b, 0, kv), *v = of.v + s.key(b, 0, kv);
  const int passes = ((first + rows < length ? first + rows : length) + N - 1) / N;
  const float factor = (capped ? s.cap : s.scale) * log2_e;
  const int begin = bounded ? of.starts[b * s.length + first] / N : 0;  // no row sees tiles of keys before

  fetch(tiles.q, q, queries, first), fetch(tiles.dout, dout, queries, first);
  fetch(tiles.k[begin % 2], k, keys, begin * N), fetch(tiles.v[begin % 2], v, keys, begin * N);
  fetch_numbers(tiles.lse, of.lse + s.row(b, 0, h), length, first, 0);
  fetch_numbers(tiles.delta, of.deltas + s.row(b, 0, h), length, first, 0);
  if constexpr (bounded) tiles.fetch_bounds(of.starts + b * s.length, length, first);
  commit_async();
  float sum[R][D / 8][4];
  clear(sum);
  for (int t = begin; t < passes; ++t) {
    wait_async<0>();
    __syncthreads();  // tile t is there, and nobody reads tile t - 1 any more
    if (t + 1 < passes)
      fetch(tiles.k[(t + 1) % 2], k, keys, (t + 1) * N), fetch(tiles.v[(t + 1) % 2], v, keys, (t + 1) * N);
    commit_async();
    const int ahead = t * N - (first + row);
    if (ahead > 16 * R - 1) continue;
    if constexpr (bounded)
      if ((t + 1) * N <= tiles.bounds[row]) continue;
    float p[R][N / 8][4], dp[R][N / 8][4];
    if constexpr (capped) row_products(dp, tiles.dout, row, tiles.v[t % 2]);  // the slope of a score goes to dp
    row_products(p, tiles.q, row, tiles.k[t % 2]);
    each_sum(p, [&](int r, int j, int e) {
      if constexpr (capped) {
        squash(p[r][j][e], s.within);
        dp[r][j][e] = (dp[r][j][e] - tiles.delta[row + row_of(r, e)]) * fmaf(-p[r][j][e], p[r][j][e], 1.0f);
      }
      p[r][j][e] = exp2f(fmaf(factor, p[r][j][e], -log2_e * tiles.lse[row + row_of(r, e)]));
    });
    if (ahead + N - 1 > 0) hide(p, 0, [&](int i, int j) { return ahead + j > i; });
    if constexpr (bounded)
      if (t * N < tiles.bounds[row + 16 * R - 1])
        hide(p, 0, [&](int i, int j) { return t * N + j < tiles.bounds[row + i]; });
    if constexpr (!capped) row_products(dp, tiles.dout, row, tiles.v[t % 2]);
    each_sum(p, [&](int r, int j, int e) {
      p[r][j][e] *= capped ? dp[r][j][e] : dp[r][j][e] - tiles.delta[row + row_of(r, e)];
    });
    add_product(sum, p, tiles.k[t % 2], 0);
  }
  store_sums(
      sum, [&](int, int) { return s.scale; }, tiles.q, row, of.dq + s.query(b, 0, h), queries, first, 0);
}

template <class T>
void grad_query_tiled(const Heads& s, const Tiling& tiling, const Grad<T>& p, bool deltas_alone, cudaStream_t stream) {
  constexpr unsigned block = 256;
  const int64_t n = s.batch * s.length * s.heads;
  int lanes = 1;
  while (lanes * widest<T> < s.size) lanes *= 2;
  launch<row_deltas<T>>(blocks_for(n * lanes, block), block, 0, stream, s, n, lanes, p.dout, p.o, p.deltas);
  if (deltas_alone) return;
  by_tiling<T>(tiling, p.starts, s.cap != 0, [&]<Tiling t, bool bounded, bool capped>() {
    launch_tiles<grad_query_tile<T, t.width, t.query, t.keys_query, bounded, capped>,
                 GradQueryTiles<T, t.width, t.query, t.keys_query, bounded>, t.query>(s, s.heads, p, stream);
  });
}
template void grad_query_tiled(const Heads&, const Tiling&, const Grad<bf16>&, bool, cudaStream_t);
template void grad_query_tiled(const Heads&, const Tiling&, const Grad<f16>&, bool, cudaStream_t);
template void grad_query_tiled(const Heads&, const Tiling&, const Grad<float>&, bool, cudaStream_t);

}  // namespace attention
}  // namespace cuda
