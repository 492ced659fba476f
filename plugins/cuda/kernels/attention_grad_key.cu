// SPDX-License-Identifier: Apache-2.0
// The second half of the gradient of attention, on tensor cores: dk and dv. A block owns a tile of keys of one key head
// and adds what the query heads of that head contribute, head by head, in the order of the queries.
#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

template <class T, int D, int R, int M>
struct GradKeyTiles {
  Tile<T, D, tile_rows<R>> k, v;
  Tile<T, D, M> q[2], dout[2];
  float lse[2][M], delta[2][M];
};

// P^T = exp(scale k q^T - lse);  dv = P^T do;  dS^T = P^T (v do^T - delta);  dk = scale dS^T q.
// Grid: tiles of keys, the first ones first, for they have the most queries; sequences; key heads; parts of the
// columns.
template <class T, int D, int R, int M, int Parts>
__global__ void __launch_bounds__(threads) grad_key_tile(Heads s, const T* dout, const T* q, const T* k, const T* v,
                                                         const float* lse, const float* deltas, T* dk, T* dv) {
  using Tiles = GradKeyTiles<T, D, R, M>;
  constexpr int rows = tile_rows<R>, chunks = D / 8 / Parts;
  static_assert(2 * M <= threads);
  Tiles& tiles = shared<Tiles>();
  const int part = static_cast<int>(blockIdx.x % Parts) * chunks;
  const int64_t turn = blockIdx.x / Parts / s.kv_heads, kv = blockIdx.x / Parts % s.kv_heads, b = turn % s.batch;
  const int length = static_cast<int>(s.length), columns = static_cast<int>(s.size);
  const int first = static_cast<int>(turn / s.batch) * rows, row = warp_index() * 16 * R;
  const Rows queries = {length, columns, static_cast<int>(s.heads * s.size)};
  const Rows keys = {length, columns, static_cast<int>(s.kv_heads * s.size)};
  k += s.key(b, 0, kv), v += s.key(b, 0, kv);
  const int64_t group = s.heads / s.kv_heads, head = kv * group;
  const int start = first / M, tiles_of_head = (length + M - 1) / M - start;
  const float factor = s.scale * log2_e;

  // Tile t of head `h` of the group, to buffer `to`.
  const auto fetch_queries = [&](int64_t h, int t, int to) {
    const int at = (start + t) * M, i = static_cast<int>(threadIdx.x);
    const int64_t from = s.query(b, 0, head + h);
    fetch(tiles.q[to], q + from, queries, at), fetch(tiles.dout[to], dout + from, queries, at);
    const int64_t line = s.row(b, at, head + h);
    if (i < M)
      copy_async<4>(shared_address(&tiles.lse[to][i]), lse + line + i, at + i < length);
    else if (i < 2 * M)
      copy_async<4>(shared_address(&tiles.delta[to][i - M]), deltas + line + i - M, at + i - M < length);
  };
  fetch(tiles.k, k, keys, first), fetch(tiles.v, v, keys, first);
  fetch_queries(0, 0, 0);
  commit_async();
  float dk_sum[R][chunks][4], dv_sum[R][chunks][4];
  clear(dk_sum), clear(dv_sum);
  int now = 0;  // the buffer with tile t of head h
  int64_t h = 0;
  for (int t = 0; h < group; now ^= 1) {
    const int next = t + 1 < tiles_of_head ? t + 1 : 0;
    const int64_t next_head = next ? h : h + 1;
    wait_async<0>();
    __syncthreads();  // this tile is there, and nobody reads the last one any more
    if (next_head < group) fetch_queries(next_head, next, now ^ 1);
    commit_async();
    const int ahead = (start + t) * M - (first + row);  // of the first query before the first key
    h = next_head, t = next;
    if (ahead + M - 1 < 0) continue;  // all queries come before all keys
    float p[R][M / 8][4], dp[R][M / 8][4];
    row_products(p, tiles.k, row, tiles.q[now]);
    ENG_UNROLL for (int j = 0; j < M / 8; ++j) ENG_UNROLL for (int e = 0; e < 2; ++e) {
      const float base = -log2_e * tiles.lse[now][column_of(j, e)];
      ENG_UNROLL for (int r = 0; r < R; ++r) ENG_UNROLL for (int h2 = 0; h2 < 2; ++h2) p[r][j][2 * h2 + e] =
          exp2f(fmaf(factor, p[r][j][2 * h2 + e], base));
    }
    if (ahead < 16 * R - 1)
      ENG_UNROLL for (int r = 0; r < R; ++r) ENG_UNROLL for (int j = 0; j < M / 8; ++j)
          ENG_UNROLL for (int e = 0; e < 4; ++e) if (ahead + column_of(j, e) < row_of(r, e)) p[r][j][e] = 0;
    add_product(dv_sum, p, tiles.dout[now], part);
    row_products(dp, tiles.v, row, tiles.dout[now]);
    ENG_UNROLL for (int j = 0; j < M / 8; ++j) ENG_UNROLL for (int e = 0; e < 2; ++e) {
      const float delta = tiles.delta[now][column_of(j, e)];
      ENG_UNROLL for (int r = 0; r < R; ++r) ENG_UNROLL for (int h2 = 0; h2 < 2; ++h2) p[r][j][2 * h2 + e] *=
          dp[r][j][2 * h2 + e] - delta;
    }
    add_product(dk_sum, p, tiles.q[now], part);
  }
  float scale[R][2], one[R][2];
  ENG_UNROLL for (int r = 0; r < R; ++r) scale[r][0] = scale[r][1] = s.scale, one[r][0] = one[r][1] = 1;
  store_sums(dk_sum, scale, tiles.k, row, dk + s.key(b, 0, kv), keys, first, part);
  store_sums(dv_sum, one, tiles.v, row, dv + s.key(b, 0, kv), keys, first, part);
}

template <class T>
void run_grad_key(const Heads& s, const Tiling& tiling, const Grad<T>& p, cudaStream_t stream) {
  by_tiling(tiling, [&]<int I>() {
    constexpr Tiling t = tilings[I];
    const int64_t tiles = (s.length + tile_rows<t.key> - 1) / tile_rows<t.key>;
    launch<grad_key_tile<T, t.width, t.key, t.queries_key, t.parts>>(
        static_cast<unsigned>(tiles * s.batch * s.kv_heads * t.parts), threads,
        room_for<GradKeyTiles<T, t.width, t.key, t.queries_key>>(), stream, s, p.dout, p.q, p.k, p.v, p.lse,
        static_cast<const float*>(p.deltas), p.dk, p.dv);
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
