// SPDX-License-Identifier: Apache-2.0
// The second half of the gradient of attention, in tiles: dk and dv. A block owns a tile of keys of one key head
// and adds what the query heads of that head contribute, head by head, in the order of the queries.
#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

template <class T, int D, int R, int M, bool bounded>
struct GradKeyTiles : Bounds<tile_rows<R>, bounded> {
  Tile<T, D, tile_rows<R>> k, v;
  Tile<T, D, M> q[2], dout[2];
  float lse[2][M], delta[2][M];
};

// P^T = exp(scale k q^T - lse);  dv = P^T do;  dS^T = P^T (v do^T - delta);  dk = scale dS^T q. Of capped scores, dS is
// times their slope.
// Grid: tiles of keys, the first ones first, for they have the most queries; sequences; key heads; parts of the
// columns.
template <class T, int D, int R, int M, int Parts, bool bounded, bool capped>
__global__ void __launch_bounds__(threads) grad_key_tile(Heads s, Grad<T> of) {
  using Tiles = GradKeyTiles<T, D, R, M, bounded>;
  constexpr int rows = tile_rows<R>, chunks = D / 8 / Parts;
  static_assert(2 * M <= threads);
  Tiles& tiles = shared<Tiles>();
  const int part = static_cast<int>(blockIdx.x % Parts) * chunks;
  const Turn turn(blockIdx.x / Parts, s.kv_heads, s.batch);
  const int kv = turn.head, b = turn.sequence;
  const Rows queries(s, s.heads), keys(s, s.kv_heads);
  const int length = queries.rows, first = turn.tile * rows, row = warp_index() * 16 * R;
  const int group = static_cast<int>(s.heads / s.kv_heads);
  const int stop = bounded ? of.ends[b * s.length + (first + rows < length ? first + rows : length) - 1] : length;
  const int start = first / M, tiles_of_head = (stop + M - 1) / M - start;  // no query behind sees these keys
  const float factor = (capped ? s.cap : s.scale) * log2_e;

  // Tile t of head h of the group, to buffer `to`.
  const auto fetch_queries = [&](int h, int t, int to) {
    const int at = (start + t) * M;
    const int64_t head = kv * group + h, from = s.query(b, 0, head), line = s.row(b, 0, head);
    fetch(tiles.q[to], of.q + from, queries, at), fetch(tiles.dout[to], of.dout + from, queries, at);
    fetch_numbers(tiles.lse[to], of.lse + line, length, at, 0);
    fetch_numbers(tiles.delta[to], of.deltas + line, length, at, M);
  };
  fetch(tiles.k, of.k + s.key(b, 0, kv), keys, first), fetch(tiles.v, of.v + s.key(b, 0, kv), keys, first);
  if constexpr (bounded) tiles.fetch_bounds(of.ends + b * s.length, length, first);
  fetch_queries(0, 0, 0);
  commit_async();
  float dk_sum[R][chunks][4], dv_sum[R][chunks][4];
  clear(dk_sum), clear(dv_sum);
  int now = 0;  // the buffer with tile t of head h
  for (int h = 0, t = 0; h < group; now ^= 1) {
    const int ahead = (start + t) * M - (first + row);  // of the first query before the first key
    if (++t == tiles_of_head) t = 0, ++h;
    wait_async<0>();
    __syncthreads();  // this tile is there, and nobody reads the last one any more
    if (h < group) fetch_queries(h, t, now ^ 1);
    commit_async();
    if (ahead + M - 1 < 0) continue;  // all queries come before all keys
    [[maybe_unused]] const int from = first + row + ahead;
    if constexpr (bounded)
      if (from >= tiles.bounds[row + 16 * R - 1]) continue;
    float p[R][M / 8][4], dp[R][M / 8][4];
    if constexpr (capped) row_products(dp, tiles.v, row, tiles.dout[now]);  // the slope of a score goes to dp
    row_products(p, tiles.k, row, tiles.q[now]);
    each_sum(p, [&](int r, int j, int e) {
      if constexpr (capped) {
        squash(p[r][j][e], s.within);
        dp[r][j][e] = (dp[r][j][e] - tiles.delta[now][column_of(j, e)]) * fmaf(-p[r][j][e], p[r][j][e], 1.0f);
      }
      p[r][j][e] = exp2f(fmaf(factor, p[r][j][e], -log2_e * tiles.lse[now][column_of(j, e)]));
    });
    if (ahead < 16 * R - 1) hide(p, 0, [&](int i, int j) { return ahead + j < i; });
    if constexpr (bounded)
      if (from + M > tiles.bounds[row]) hide(p, 0, [&](int i, int j) { return from + j >= tiles.bounds[row + i]; });
    add_product(dv_sum, p, tiles.dout[now], part);
    if constexpr (!capped) row_products(dp, tiles.v, row, tiles.dout[now]);
    each_sum(p, [&](int r, int j, int e) {
      p[r][j][e] *= capped ? dp[r][j][e] : dp[r][j][e] - tiles.delta[now][column_of(j, e)];
    });
    add_product(dk_sum, p, tiles.q[now], part);
  }
  store_sums(
      dk_sum, [&](int, int) { return s.scale; }, tiles.k, row, of.dk + s.key(b, 0, kv), keys, first, part);
  store_sums(
      dv_sum, [&](int, int) { return 1.0f; }, tiles.v, row, of.dv + s.key(b, 0, kv), keys, first, part);
}

template <class T>
void grad_key_tiled(const Heads& s, const Tiling& tiling, const Grad<T>& p, cudaStream_t stream) {
  by_tiling<T>(tiling, p.ends, s.cap != 0, [&]<Tiling t, bool bounded, bool capped>() {
    launch_tiles<grad_key_tile<T, t.width, t.key, t.queries_key, t.parts, bounded, capped>,
                 GradKeyTiles<T, t.width, t.key, t.queries_key, bounded>, t.key>(s, s.kv_heads * t.parts, p, stream);
  });
}
template void grad_key_tiled(const Heads&, const Tiling&, const Grad<bf16>&, cudaStream_t);
template void grad_key_tiled(const Heads&, const Tiling&, const Grad<f16>&, cudaStream_t);
template void grad_key_tiled(const Heads&, const Tiling&, const Grad<float>&, cudaStream_t);

}  // namespace attention
}  // namespace cuda
