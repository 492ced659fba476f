// SPDX-License-Identifier: Apache-2.0
// The gradient of the scan of Mamba-2: the formulas of ../loops_ssd_grad.hpp. The states before each chunk are computed
// again, then the gradient of those behind each chunk; then all chunks go side by side, each by a block for some heads
// of a group, one head after another.
#include "ssd.cuh"

namespace mamba {
namespace on_cuda {

// The numbers of tokens that a head adds up, by rows but for `later`: what the token gave later ones of its chunk, and
// what it got of earlier ones; d(s x) x; what x gave the states behind the chunk, and y got of those before it.
enum Number { later, earlier, own, leaving, entering, numbers };
template <class T>
struct GradRoom : Room<T> {
  float sums[numbers][4][tile];
  float through[tile_block / warp], skipped[tile_block / warp];  // the states; D x
  float scores[32][tile_block], dscores[32][tile_block];         // C B^T and its gradient: each thread's own
};

template <class T>
struct SsdGradOf {
  SsdOf<T> forward;
  const T* dy;
  const float* after;  // as `kept`: the gradient of the states behind each chunk
  float* dbc;          // (parts, B, T, 2 G N)
  float* sums;         // (B, chunks, 3, H): for a_log, d and dt_bias
  T *dxbc, *ddt;
  int64_t parts, size;  // of a group: `parts` blocks for `size` heads each, the last one may have fewer
};

// The gradients of dt, a_log, d and dt_bias, by a warp.
template <class T>
__device__ __forceinline__ void finish_head(const SsdGradOf<T>& g, const GradRoom<T>& room, const Piece& piece,
                                            int64_t head, float* sums) {
  using Rows = Totals<T, true>;
  const SsdOf<T>& p = g.forward;
  const int t = static_cast<int>(threadIdx.x) * 2;
  const double rate = -static_cast<double>(expf(p.a_log[head]));
  double through = 0, got[2], gave[2], totals[3] = {};
  for (int k = 0; k < tile_block / static_cast<int>(warp); ++k) {
    through += static_cast<double>(room.through[k]);
    if (t == 0) totals[1] += static_cast<double>(room.skipped[k]);
  }
  for (int k = 0; k < 2; ++k) {
    got[k] = Rows::read(room.sums[earlier], t + k) - Totals<T, false>::read(room.sums[later], t + k) +
             Rows::read(room.sums[entering], t + k);
    gave[k] = Rows::read(room.sums[leaving], t + k);
  }
  // The gradient of the exponent s A of a token: what tokens from it on got, and what those before it gave.
  const double change = gave[0] - got[0] + (gave[1] - got[1]), got_all = sum_up_to(got[0] + got[1]);
  double exponent = through * static_cast<double>(room.steps.from_start[tile - 1]) +
                    __shfl_sync(0xffffffffu, got_all, 31) + (sum_up_to(change) - change);
  for (int k = 0; k < 2; ++k) {
    if (t + k < piece.count()) {
      const double of_step = rate * exponent + Rows::read(room.sums[own], t + k);
      const auto ddt = static_cast<float>(of_step * static_cast<double>(room.steps.slope[t + k]));
      put(ddt, g.ddt[(piece.at + t + k) * p.s.dt_stride + p.s.dt_stride - p.s.heads + head]);
      totals[0] += static_cast<double>(room.steps.step[t + k]) * rate * exponent;
      totals[2] += static_cast<double>(ddt);
    }
    exponent += gave[k] - got[k];
  }
  for (int k = 0; k < 3; ++k) {
    const auto sum = static_cast<float>(sum_up_to(totals[k]));
    if (threadIdx.x + 1 == warp) sums[k * p.s.heads] = piece.begin ? sums[k * p.s.heads] + sum : sum;
  }
}

// A piece and a head: adds its part of the gradient of C B^T to room.dscores, that of the states to dB and dC.
// add(sums, 0 or 1, state, begun) does so; `begun`: other heads have written there.
template <class T, class Add>
__device__ __forceinline__ void grad_of_head(const SsdGradOf<T>& g, GradRoom<T>& room, const Piece& piece, int64_t head,
                                             const float* before, const float* after, bool begun, const Add& add) {
  const SsdOf<T>& p = g.forward;
  const SsdSizes& s = p.s;
  const Steps& steps = room.steps;
  const int64_t group = head / (s.heads / s.groups);
  find_steps(p, piece, head, room.steps);
  {
    Sums<T> w;  // dy x^T
    ENG_ROLL
    for (int64_t i = 0; i < s.width; i += tile)
      product<true, true>(room, w, p.y(g.dy, piece, head, i), p.x(piece, head, i));
    Totals<T, true> got;
    Totals<T, false> gave;
    w.each_own([&](int n, int t, int r, float product_of) {
      const float decay = steps.decay(t, r), by = decay * steps.step[r] * product_of;
      const float score = room.scores[n][threadIdx.x], both = r < t ? score * by : 0.0f;
      float& dscore = room.dscores[n][threadIdx.x];
      dscore = begun ? dscore + by : by;
      put(score * decay, room.kept.at[t][r]);
      got.add(n, both), gave.add(n, both);
    });
    got.write(room.sums[earlier]), gave.write(room.sums[later]);
  }
  Totals<T, true> of_step;
  float skipped = 0, through = 0;
  ENG_ROLL
  for (int64_t i = 0; i < s.width; i += tile) {
    Sums<T> v;  // d(s x)
    ENG_ROLL
    for (int64_t n = 0; after && n < s.states; n += tile)
      product<true, false>(room, v, p.bc(piece, group, 0, n), p.states(after, n, i));
    v.each([&](int r, int, float& sum) { sum *= steps.to_end[r]; });
    const Part<T> x = p.x(piece, head, i);
    product<false, false>(room, v, Kept{}, p.y(g.dy, piece, head, i));
    T* const dx = g.dxbc + (x.at - p.xbc);
    v.each_own([&](int n, int r, int j, float sum) {
      const float x_of = x(r, j), dy_of = value(room.right.at[r][j]);
      if (x.has(r, j)) put(fmaf(p.d[head], dy_of, steps.step[r] * sum), dx[x.index(r, j)]);
      of_step.add(n, x_of * sum), skipped = fmaf(x_of, dy_of, skipped);
    });
  }
  of_step.write(room.sums[own]);
  // B or C by the states: the products of x or dy with them, and of B or C with that.
  const auto by_states = [&]<bool of_c>(const float* states) {
    Totals<T, true> all;
    ENG_ROLL
    for (int64_t from = 0; states && from < s.states; from += tile) {
      Sums<T> u;
      ENG_ROLL
      for (int64_t i = 0; i < s.width; i += tile)
        product<true, true>(room, u, of_c ? p.y(g.dy, piece, head, i) : p.x(piece, head, i), p.states(states, from, i));
      const Part<T> bc = p.bc(piece, group, of_c, from);
      u.each_own([&](int n, int t, int j, float& sum) {
        sum *= of_c ? steps.from_start[t] : steps.step[t] * steps.to_end[t];
        all.add(n, bc(t, j) * sum);
      });
      add(u, of_c, from, begun);
    }
    all.write(room.sums[of_c ? entering : leaving]);
  };
  by_states.template operator()<false>(after), by_states.template operator()<true>(before);
  for (int64_t i = threadIdx.x; before && after && i < s.state(); i += tile_block)
    through = fmaf(before[i], after[i], through);
  through = sum_of_warp(through), skipped = sum_of_warp(skipped);
  if (threadIdx.x % warp == 0) room.through[threadIdx.x / warp] = through, room.skipped[threadIdx.x / warp] = skipped;
}

// blockIdx.x: chunk, group and part of its heads; blockIdx.y: sequences.
template <class T>
__global__ void __launch_bounds__(tile_block, 2) ssd_grad(SsdGradOf<T> g) {
  GradRoom<T>& room = shared<GradRoom<T>>();
  const SsdOf<T>& p = g.forward;
  const SsdSizes& s = p.s;
  const int64_t part = blockIdx.x % g.parts, group = blockIdx.x / g.parts % s.groups,
                c = blockIdx.x / g.parts / s.groups, of_group = s.heads / s.groups, first = part * g.size,
                last = first + g.size < of_group ? first + g.size : of_group;
  for (int64_t b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const Pieces pieces(s, b, c);
    for (int begin = 0; begin < pieces.count;) {
      const Piece piece = pieces.piece(begin);
      begin = piece.end;
      const bool enters = piece.first && c > 0, leaves = piece.last && c + 1 < s.chunks;
      const auto add = [&](Sums<T>& sums, int of_c, int64_t from, bool begun) {
        const Part<T> bc = p.bc(piece, group, of_c, from);
        const int64_t of_token = 2 * s.groups * s.states;
        float* const out =
            g.dbc + (part * s.batch * s.tokens + piece.at) * of_token + (of_c * s.groups + group) * s.states;
        sums.each([&](int t, int j, float sum) {
          if (!bc.has(t, j)) return;
          float& to = out[t * static_cast<int>(of_token) + static_cast<int>(from) + j];
          to = begun ? to + sum : sum;
        });
      };
      {
        Sums<T> scores;
        ENG_ROLL
        for (int64_t n = 0; n < s.states; n += tile)
          product<true, true>(room, scores, p.bc(piece, group, 1, n), p.bc(piece, group, 0, n));
        scores.each_own([&](int n, int, int, float sum) { room.scores[n][threadIdx.x] = sum; });
      }
      ENG_ROLL
      for (int64_t k = first; k < last; ++k) {
        const int64_t head = group * of_group + k, at = s.kept_at(b, c, head);
        grad_of_head(g, room, piece, head, enters ? p.kept + at : nullptr, leaves ? g.after + at : nullptr, k > first,
                     add);
        __syncthreads();
        if (threadIdx.x >= warp) continue;
        finish_head(g, room, piece, head, g.sums + (b * s.chunks + c) * 3 * s.heads + head);
        __syncwarp();  // the next steps take the place of those that all lanes have read
      }
      Sums<T>{}.each_own([&](int n, int t, int r, float) { put(room.dscores[n][threadIdx.x], room.kept.at[t][r]); });
      ENG_ROLL
      for (int64_t n = 0; n < s.states; n += tile) {
        Sums<T> db, dc;
        product<false, false>(room, db, Kept{}, p.bc(piece, group, 1, n));
        add(db, 0, n, leaves);
        product<true, false>(room, dc, Kept{}, p.bc(piece, group, 0, n));
        add(dc, 1, n, enters);
      }
    }
  }
}

struct SsdGrad {
  static constexpr const char* op = MAMBA_OP_SSD_GRAD;
  static constexpr size_t segments = 6;
  int32_t type;
  SsdSizes s;
  // Parts of the heads of a group, and offsets in the scratch memory in floats; the sums are the first.
  struct Room {
    int64_t size, parts, kept, after, dbc, end;
    explicit Room(const SsdSizes& s) {
      const int64_t heads = s.heads / s.groups, most = s.groups < 8 ? 8 / s.groups : 1;
      size = (heads + most - 1) / most, parts = (heads + size - 1) / size;
      kept = s.batch * s.chunks * 3 * s.heads, after = kept + s.kept(), dbc = after + s.kept();
      end = dbc + s.slice * parts * s.tokens * 2 * s.groups * s.states;
    }
  };
  static void check(const Call& c) {
    need_counts(c, 6, 7, 5, 5), need_ssd(c, 1, segments), need_types(c, c.in[1].dtype, {0}, {1}, "dy or ddt");
    need_types(c, ENG_F32, {}, {2, 3, 4}, "the gradient of a_log, d or dt_bias");
  }
  static uint64_t workspace(const Call& c) { return sizeof(float) * static_cast<uint64_t>(Room(ssd_sizes(c, 1)).end); }
  explicit SsdGrad(const Call& c) : type(c.in[1].dtype), s(ssd_sizes(c, 1)) {}
  void run(const Args& a, cudaStream_t stream) const {
    const Room room(s);
    float* const sums = a.scratch<float>();
    by_type(type, [&]<class T>(T) {
      each_slice<T>(a, 1, s, a.in<int32_t>(segments), [&](int64_t b, SsdOf<T> p) {
        const int64_t token = b * s.tokens, columns = 2 * s.groups * s.states;
        const T* const dy = a.in<T>(0) + token * s.channels;
        p.kept = sums + room.kept, launch_walk<false, T>(p, nullptr, nullptr, stream);
        p.kept = sums + room.after, launch_walk<true, T>(p, dy, nullptr, stream);
        p.kept = sums + room.kept;
        SsdGradOf<T> g{};
        g.forward = p, g.dy = dy, g.after = sums + room.after, g.dbc = sums + room.dbc;
        g.sums = sums + b * s.chunks * 3 * s.heads, g.parts = room.parts, g.size = room.size;
        g.dxbc = a.out<T>(0) + token * s.stride, g.ddt = a.out<T>(1) + token * s.dt_stride;
        launch<ssd_grad<T>>(grid_of(s.chunks * s.groups * room.parts, 1, p.s.batch), tile_block, sizeof(GradRoom<T>),
                            stream, g);
        const int64_t all = p.s.batch * s.tokens * columns;
        launch_each(all, stream, SumLinesOf<T>{g.dbc, g.dxbc + s.channels, room.parts, all, columns, s.channels});
      });
      clear(a.out<T>(1), Sequences{s.batch, s.tokens, s.heads, s.dt_stride, nullptr}, stream);
    });
    for (int64_t k = 0; k < 3; ++k)  // over sequences and chunks
      launch_each(s.heads, stream,
                  SumLinesOf<float>{sums + k * s.heads, a.out<float>(static_cast<size_t>(2 + k)), s.batch * s.chunks,
                                    3 * s.heads});
  }
};

}  // namespace on_cuda

void add_ssd_grad(std::vector<const eng_kernel*>& list) {
  list.push_back(&cuda::kernel<on_cuda::SsdGrad>);
}

}  // namespace mamba
