// SPDX-License-Identifier: Apache-2.0
// The second half of the gradient of attention, on tensor cores: dk and dv. A block owns a tile of keys of one key head
// and adds what the query heads of that head contribute, head by head, in the order of the queries.
#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

template <class T, int D, int R, int M, bool packed>
struct GradKeyTiles : Bounds<tile_rows<R>, packed> {
  Tile<T, D, tile_rows<R>> k, v;
  Tile<T, D, M> q[2], dout[2];
  float lse[2][M], delta[2][M];
};

// P^T = exp(scale k q^T - lse);  dv = P^T do;  dS^T = P^T (v do^T - delta);  dk = scale dS^T q.
// Grid: tiles of keys, the first ones first, for they have the most queries; sequences; key heads; parts of the
// columns.
// `ends`: of the documents, if samples are packed.
template <class T, int D, int R, int M, int Parts, bool packed>
__global__ void __launch_bounds__(threads)
    grad_key_tile(Heads s, const T* dout, const T* q, const T* k, const T* v, const float* lse, const float* deltas,
                  T* dk, T* dv, const int32_t* ends) {
  using Tiles = GradKeyTiles<T, D, R, M, packed>;
  constexpr int rows = tile_rows<R>, chunks = D / 8 / Parts;
  static_assert(2 * M <= threads);
  Tiles& tiles = shared<Tiles>();
  const int part = static_cast<int>(blockIdx.x % Parts) * chunks;
  const Turn turn(blockIdx.x / Parts, s.kv_heads, s.batch);
  const int kv = turn.head, b = turn.sequence;
  const int length = static_cast<int>(s.length), columns = static_cast<int>(s.size);
  const int first = turn.tile * rows, row = warp_index() * 16 * R;
  const Rows queries = {length, columns, static_cast<int>(s.heads * s.size)};
  const Rows keys = {length, columns, static_cast<int>(s.kv_heads * s.size)};
  k += s.key(b, 0, kv), v += s.key(b, 0, kv);
  const int group = static_cast<int>(s.heads / s.kv_heads);
  const int stop = packed ? ends[b * s.length + (first + rows < length ? first + rows : length) - 1] : length;
  const int start = first / M, tiles_of_head = (stop + M - 1) / M - start;  // queries behind are of other documents
  const float factor = s.scale * log2_e;

  // Tile t of head h of the group, to buffer `to`.
  const auto fetch_queries = [&](int h, int t, int to) {
    const int at = (start + t) * M;
    const int64_t head = kv * group + h, from = s.query(b, 0, head), line = s.row(b, 0, head);
    fetch(tiles.q[to], q + from, queries, at), fetch(tiles.dout[to], dout + from, queries, at);
    fetch_numbers(tiles.lse[to], lse + line, length, at, 0);
    fetch_numbers(tiles.delta[to], deltas + line, length, at, M);
  };
  fetch(tiles.k, k, keys, first), fetch(tiles.v, v, keys, first);
  if constexpr (packed) tiles.fetch_bounds(ends + b * s.length, length, first);
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
    if constexpr (packed)
      if (from >= tiles.bounds[row + 16 * R - 1]) continue;
    float p[R][M / 8][4], dp[R][M / 8][4];
    row_products(p, tiles.k, row, tiles.q[now]);
    each_sum(p, [&](int r, int j, int e) {
      p[r][j][e] = exp2f(fmaf(factor, p[r][j][e], -log2_e * tiles.lse[now][column_of(j, e)]));
    });
    if (ahead < 16 * R - 1)
      each_sum(p, [&](int r, int j, int e) {
        if (ahead + column_of(j, e) < row_of(r, e)) p[r][j][e] = 0;
      });
    if constexpr (packed)
      if (from + M > tiles.bounds[row]) hide<true>(p, tiles.bounds + row, from, 0);
    add_product(dv_sum, p, tiles.dout[now], part);
    row_products(dp, tiles.v, row, tiles.dout[now]);
    each_sum(p, [&](int r, int j, int e) { p[r][j][e] *= dp[r][j][e] - tiles.delta[now][column_of(j, e)]; });
    add_product(dk_sum, p, tiles.q[now], part);
  }
  float scale[R][2], one[R][2];
  each_row<R>([&](int r, int half) { scale[r][half] = s.scale, one[r][half] = 1; });
  store_sums(dk_sum, scale, tiles.k, row, dk + s.key(b, 0, kv), keys, first, part);
  store_sums(dv_sum, one, tiles.v, row, dv + s.key(b, 0, kv), keys, first, part);
}

template <class T>
void run_grad_key(const Heads& s, const Tiling& tiling, const Grad<T>& p, cudaStream_t stream) {
  by_tiling(tiling, [&]<int I>() {
    constexpr Tiling t = tilings[I];
    const int64_t tiles = (s.length + tile_rows<t.key> - 1) / tile_rows<t.key>;
    const auto grid = static_cast<unsigned>(tiles * s.batch * s.kv_heads * t.parts);
    const auto with = [&]<bool packed>() {
      launch<grad_key_tile<T, t.width, t.key, t.queries_key, t.parts, packed>>(
          grid, threads, room_for<GradKeyTiles<T, t.width, t.key, t.queries_key, packed>>(), stream, s, p.dout, p.q,
          p.k, p.v, p.lse, static_cast<const float*>(p.deltas), p.dk, p.dv, p.documents.ends);
    };
    p.documents.ends ? with.template operator()<true>() : with.template operator()<false>();
  });
}
void grad_key_tiled(const Heads& s, const Tiling& t, const Grad<bf16>& p, cudaStream_t stream) {
  run_grad_key(s, t, p, stream);
}
void grad_key_tiled(const Heads& s, const Tiling& t, const Grad<f16>& p, cudaStream_t stream) {
  run_grad_key(s, t, p, stream);
}

}  // namespace attention
}  // namespace cuda
