// SPDX-License-Identifier: Apache-2.0
// The gradient of attention for heads of 64 and 128 elements of 16 bits on sm_90a, by wgmma: dq, or dk and dv. Each sum
// has one owner and one order, as in attention_grad_query.cu and attention_grad_key.cu, and scores are computed twice.
// A block has G warp groups with 64 rows each, and passes over tiles of 64 rows of the other side, which come through
// two buffers. Tiles are read as they lie in memory, by rows or by columns, so that nothing is transposed; 16-byte
// copies put chunks in their places, without TMA.
#include "../../common/cuda/wgmma.cuh"

#include "attention_tiles.cuh"

namespace cuda {
namespace attention {

using wgmma::Sums;
constexpr int other = 64;  // rows of a tile of the other side

// With queries, `mine` is q and do, and `others` are two buffers of k and v; with keys, the other way around. Rows of
// 128 elements are two panels of 64.
template <class T, int D, int G, bool query, bool bounded>
struct GroupTiles : Bounds<64 * G, bounded> {
  static constexpr int panels = D / 64, buffers = query ? 1 : 2, numbers = query ? 64 * G : other;
  alignas(1024) Tile<T, 64, 64 * G> mine[2][panels];
  alignas(1024) Tile<T, 64, other> others[2][2][panels];
  float lse[buffers][numbers], delta[buffers][numbers];
};

template <int block, class T, int N, int P>
__device__ __forceinline__ void fetch_panels(Tile<T, 64, N> (&to)[P], const T* from, const Rows& shape, int row) {
  ENG_UNROLL
  for (int k = 0; k < P; ++k) fetch<block>(to[k], from + 64 * k, shape, row);
}
// Starts s (64, 64) = rows row .. of a by those of b: a group of products.
template <class T, int N, int P>
__device__ __forceinline__ void start_scores(Sums& s, Tile<T, 64, N> (&a)[P], int row, Tile<T, 64, other> (&b)[P]) {
  const SharedAddress left = a[0].address() + row * 128, right = b[0].address();
  wgmma::begin();
  ENG_UNROLL
  for (int c = 0; c < 4 * P; ++c)
    wgmma::multiply_rows<T>(s, wgmma::describe(left, c / 4 * N * 128 + c % 4 * 32),
                            wgmma::describe(right, c / 4 * other * 128 + c % 4 * 32), c > 0);
  wgmma::commit();
}
// Starts sum (64, 64 P) += x (64, 64), rounded to T, by b: a group of products.
template <class T, int P>
__device__ __forceinline__ void start_sums(Sums (&sum)[P], const Sums& x, Tile<T, 64, other> (&b)[P]) {
  const SharedAddress right = b[0].address();
  uint32_t left[4][4];
  ENG_UNROLL
  for (int c = 0; c < 16; ++c) left[c / 4][c % 4] = pack<T>(x[0][c / 2][c % 2 * 2], x[0][c / 2][c % 2 * 2 + 1]);
  wgmma::begin();
  ENG_UNROLL
  for (int c = 0; c < 4 * P; ++c)
    wgmma::add_product<T>(sum[c % P], left[c / P], wgmma::describe(right, c % P * other * 128 + c / P * 16 * 128));
  wgmma::commit();
}

// P = exp(scale q k^T - lse), dS = P (do v^T - delta);  dq = scale dS k;  dk = scale dS^T q, dv = P^T do.
// Grid: tiles of queries, the last ones first, or of keys, the first ones first; sequences; heads, or key heads.
template <class T, int D, int G, bool query, bool bounded>
__global__ void __launch_bounds__(128 * G, 1 + (query && D == 64)) grad_by_wgmma(Heads s, Grad<T> of) {
  if constexpr (!wgmma::here) {
    wgmma::refuse();
  } else {
    constexpr int rows = 64 * G, block = 128 * G, last = D / 64 - 1;
    auto& tiles = shared<GroupTiles<T, D, G, query, bounded>>();
    const int shared_by = static_cast<int>(s.heads / s.kv_heads);
    const Turn turn(blockIdx.x, query ? s.heads : s.kv_heads, s.batch);
    const int b = turn.sequence, kv = query ? turn.head / shared_by : turn.head, length = static_cast<int>(s.length);
    const Rows queries(s, s.heads), keys(s, s.kv_heads), &mine = query ? queries : keys;
    const int first = (query ? (length + rows - 1) / rows - 1 - turn.tile : turn.tile) * rows;
    const int end = first + rows < length ? first + rows : length;
    const int row = warp_index() * 16, group = __shfl_sync(0xffffffffu, row / 64 * 64, 0);  // the warp's, its group's
    const int32_t* const bounds = bounded ? (query ? of.starts : of.ends) + b * s.length : nullptr;
    // Tiles of the other side, of each of `heads` heads, that a row sees.
    const int heads = query ? 1 : shared_by, begin = (query ? bounded ? bounds[first] : 0 : first) / other;
    const int stop = ((query ? end : bounded ? bounds[end - 1] : length) + other - 1) / other;
    const float factor = s.scale * log2_e;

    const auto fetch_numbers_of = [&](int h, int at, int to) {
      fetch_numbers<block>(tiles.lse[to], of.lse + s.row(b, 0, h), length, at, 0);
      fetch_numbers<block>(tiles.delta[to], of.deltas + s.row(b, 0, h), length, at, block / 2);
    };
    const auto fetch_others = [&](int h, int t, int to) {
      const int64_t q = s.query(b, 0, kv * shared_by + h), k = s.key(b, 0, kv);
      fetch_panels<block>(tiles.others[to][0], query ? of.k + k : of.q + q, query ? keys : queries, t * other);
      fetch_panels<block>(tiles.others[to][1], query ? of.v + k : of.dout + q, query ? keys : queries, t * other);
      if constexpr (!query) fetch_numbers_of(kv * shared_by + h, t * other, to);
    };
    const int64_t own = query ? s.query(b, 0, turn.head) : s.key(b, 0, kv);
    fetch_panels<block>(tiles.mine[0], (query ? of.q : of.k) + own, mine, first);
    fetch_panels<block>(tiles.mine[1], (query ? of.dout : of.v) + own, mine, first);
    if constexpr (query) fetch_numbers_of(turn.head, first, 0);
    if constexpr (bounded) tiles.fetch_bounds(bounds, length, first);
    fetch_others(0, begin, 0);
    commit_async();
    Sums sum[last + 1] = {}, dv_sum[last + 1] = {};  // of dq or dk
    int now = 0;                                     // the buffer with tile t of head h
    for (int h = 0, t = begin; h < heads; now ^= 1) {
      const int at = t * other, ahead = at - (first + row);
      if (++t == stop) t = begin, ++h;
      wait_async<0>();
      wgmma::show();
      __syncthreads();  // this tile is there, and nobody reads the last one any more
      if (h < heads) fetch_others(h, t, now ^ 1);
      commit_async();
      if (query ? at > first + group + 63 : at + other - 1 < first + group) continue;  // no query is behind a key
      if constexpr (bounded)
        if (query ? at + other <= tiles.bounds[group] : at >= tiles.bounds[group + 63]) continue;
      const auto number = [&](const auto& of_rows, int r, int j, int e) {
        return of_rows[query ? 0 : now][query ? row + row_of(r, e) : column_of(j, e)];
      };
      Sums p, dp;
      start_scores(p, tiles.mine[0], group, tiles.others[now][0]);
      start_scores(dp, tiles.mine[1], group, tiles.others[now][1]);
      wgmma::wait<1>(p);
      each_sum(p, [&](int r, int j, int e) {
        p[r][j][e] = exp2_approx(fmaf(factor, p[r][j][e], -log2_e * number(tiles.lse, r, j, e)));
      });
      if (query ? ahead + other - 1 > 0 : ahead < 15)
        hide(p, 0, [&](int i, int j) { return query ? ahead + j > i : ahead + j < i; });
      if constexpr (bounded)
        if (query ? at < tiles.bounds[row + 15] : at + other > tiles.bounds[row])
          hide(p, 0, [&](int i, int j) { return (at + j < tiles.bounds[row + i]) == query; });
      if constexpr (!query) start_sums(dv_sum, p, tiles.others[now][1]);
      wgmma::wait<!query>(dp);
      each_sum(p, [&](int r, int j, int e) { p[r][j][e] *= dp[r][j][e] - number(tiles.delta, r, j, e); });
      start_sums(sum, p, tiles.others[now][0]);
      wgmma::wait<0>(sum[0], sum[last], dv_sum[0], dv_sum[last]);
    }
    __syncthreads();  // no product of another warp reads what this one writes over
    const auto scale = [&](int, int) { return s.scale; };
    [[maybe_unused]] const auto one = [](int, int) { return 1.0f; };
    ENG_UNROLL
    for (int k = 0; k <= last; ++k) {
      store_sums(sum[k], scale, tiles.mine[0][k], row, (query ? of.dq : of.dk) + own, mine, first, 8 * k);
      if constexpr (!query) store_sums(dv_sum[k], one, tiles.mine[1][k], row, of.dv + own, mine, first, 8 * k);
    }
  }
}

// Warp groups as registers allow: for heads of 64, two blocks with queries, or one with keys, fill a processor.
template <class T>
void grad_wgmma(const Heads& s, const Grad<T>& p, cudaStream_t stream) {
  const auto go = [&]<int D, bool query, bool bounded>() {
    constexpr int G = (D == 64) == query ? 2 : 3;
    using Tiles = GroupTiles<T, D, G, query, bounded>;
    static_assert(sizeof(Tiles) <= 227 << 10, "a block of sm_90 has no more");
    const int64_t blocks = (s.length + 64 * G - 1) / (64 * G) * s.batch * (query ? s.heads : s.kv_heads);
    launch<grad_by_wgmma<T, D, G, query, bounded>>(static_cast<unsigned>(blocks), 128 * G, sizeof(Tiles), stream, s, p);
  };
  const auto both = [&]<int D>() {
    p.starts ? go.template operator()<D, true, true>() : go.template operator()<D, true, false>();
    p.starts ? go.template operator()<D, false, true>() : go.template operator()<D, false, false>();
  };
  s.size == 64 ? both.template operator()<64>() : both.template operator()<128>();
}
template void grad_wgmma(const Heads&, const Grad<bf16>&, cudaStream_t);
template void grad_wgmma(const Heads&, const Grad<f16>&, cudaStream_t);

}  // namespace attention
}  // namespace cuda
