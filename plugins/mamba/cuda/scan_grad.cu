// SPDX-License-Identifier: Apache-2.0
// The gradient of selective_scan. Four states in each lane. A chunk is walked twice: forward for the states before each
// of its parts, then part by part from the last to the first, for which the states of all its tokens are computed
// again, into registers. Sums have one order, so two runs have the same bits.
#include "scan.cuh"

namespace mamba {
namespace on_cuda {

constexpr int grad_states = 4, part_tokens = 8, parts = static_cast<int>(chunk) / part_tokens;
constexpr int scan_warps = scan_block / 32, most_groups = 32;

template <class T>
struct ScanGradOf {
  ScanOf<T> forward;
  const T* dy;
  const float* kept;
  T *du, *ddelta, *dgate;
  float* dbc;    // (B, blocks, T, 2N): of the channels of a block
  float* sums;   // (B, spans, N + 2, E): of a_log, d, dt_bias
  float* after;  // (B, spans, N, E): the gradient of the states before span q is at q; not used if there is one span
  float* steps;  // (B, spans, E): the sum of the steps of a span
  int64_t blocks;
};

struct ScanGradShared {
  float before[parts][grad_states][scan_block];         // each thread's own
  float bc[part_tokens * 2 * most_states];              // rows of [B | C], without gaps
  float dbc[scan_warps][part_tokens][2 * most_states];  // of each warp
};

using Lane = Place<grad_states, true>;

// The sum over the channels of the warp of each of 2 * left values: half of the values go to the other half of the
// lanes, and so on, as long as there are several. Writes them to `out`: of state n of the lane, the first four at n,
// the others at half + n.
template <int left = grad_states>
__device__ __forceinline__ void sum_channels(float (&v)[2 * grad_states], int lanes, int half, float* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool up = lane & 4 * left;
  ENG_UNROLL
  for (int k = 0; k < left; ++k) {
    const float sent = up ? v[k] : v[k + left], own = up ? v[k + left] : v[k];
    v[k] = own + __shfl_xor_sync(0xffffffffu, sent, 4 * left);
  }
  out += !up ? 0 : left == grad_states ? half : left;
  if constexpr (left == 1) {
    for (int by = 2; by >= lanes; by /= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], by);
    if (lane % 4 < lanes) *out = v[0];
  } else if (lanes == 4 * left) {
    ENG_UNROLL
    for (int k = 0; k < left; ++k) out[k] = v[k];
  } else {
    sum_channels<left / 2>(v, lanes, half, out);
  }
}

// The `count` tokens of a part: their steps and inputs, and the states after each of them. `h`: the states before the
// first; bit k of `begins`: a document begins at token k.
struct Part {
  float by[part_tokens], x[part_tokens], after[part_tokens][grad_states];
  template <class T>
  __device__ __forceinline__ Part(const ScanOf<T>& p, const Lane& me, const float (&rate)[grad_states], float bias,
                                  const float* bc, int64_t b, int64_t first, int count, unsigned begins,
                                  const float (&h)[grad_states]) {
    ENG_UNROLL
    for (int k = 0; k < part_tokens; ++k) {
      const bool there = me.there && k < count;
      by[k] = there ? softplus(value(p.delta[p.s.at(b, first + k, me.e)]) + bias) : 0.0f;
      x[k] = there ? value(p.u[p.s.at(b, first + k, me.e)]) : 0.0f;
    }
    ENG_UNROLL
    for (int k = 0; k < part_tokens; ++k) ENG_UNROLL
    for (int n = 0; n < grad_states; ++n)
      after[k][n] = fmaf(exp2_approx(by[k] * rate[n]), before(k, n, begins, h),
                         by[k] * x[k] * bc[k * 2 * grad_states * p.s.lanes + me.first + n]);
  }
  // State n before token k.
  __device__ __forceinline__ float before(int k, int n, unsigned begins, const float (&h)[grad_states]) const {
    return begins >> k & 1 ? 0.0f : k ? after[k > 0 ? k - 1 : 0][n] : h[n];
  }
};

// What a thread sums over all of its tokens.
struct Totals {
  float a[grad_states] = {}, d = 0, bias = 0;
};

// From the states before a part, `h`, to the gradients of its tokens. `g`: the gradient of the states after it, which
// becomes that of the states before it.
template <class T>
__device__ __forceinline__ void grad_of_part(const ScanGradOf<T>& q, ScanGradShared& room, int64_t b, int64_t first,
                                             unsigned begins, const Lane& me, const float (&rate)[grad_states],
                                             const float (&h)[grad_states], float (&g)[grad_states], Totals& totals) {
  constexpr float ln2 = 0.693147181f;
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int half = grad_states * s.lanes, warp = static_cast<int>(threadIdx.x) / 32;
  const float bias = p.dt_bias[me.e], d = p.d[me.e];
  const int count = first + part_tokens < s.tokens ? part_tokens : static_cast<int>(s.tokens - first);
  const Part part(p, me, rate, bias, room.bc, b, first, count, begins, h);
  ENG_UNROLL
  for (int k = part_tokens - 1; k >= 0; --k) {
    const int64_t t = first + k;
    if (k >= count) continue;  // all threads do
    const float in = me.there ? value(q.dy[s.at(b, t, me.e)]) : 0.0f,
                z = me.there ? value(p.gate[s.gate_at(b, t, me.e)]) : 0.0f,
                raw = me.there ? value(p.delta[s.at(b, t, me.e)]) + bias : 0.0f;
    const float open = sigmoid(z), dy = in * z * open;
    const float by = part.by[k], x = part.x[k];
    float y = 0, x_sum = 0, s_sum = 0, dbc[2 * grad_states];
    ENG_UNROLL
    for (int n = 0; n < grad_states; ++n) {
      const float b_t = room.bc[k * 2 * half + me.first + n], c_t = room.bc[k * 2 * half + half + me.first + n];
      const float decay = exp2_approx(by * rate[n]);
      const float slope = rate[n] * ln2 * (decay * part.before(k, n, begins, h));
      y = fmaf(c_t, part.after[k][n], y);
      g[n] = fmaf(c_t, dy, g[n]);
      dbc[n] = g[n] * (by * x), dbc[grad_states + n] = dy * part.after[k][n];
      x_sum = fmaf(g[n] * by, b_t, x_sum);
      s_sum = fmaf(g[n], fmaf(b_t, x, slope), s_sum);
      totals.a[n] = fmaf(g[n] * by, slope, totals.a[n]);
      g[n] = begins >> k & 1 ? 0.0f : g[n] * decay;
    }
    y = sum_of_lanes(y, s.lanes), x_sum = sum_of_lanes(x_sum, s.lanes), s_sum = sum_of_lanes(s_sum, s.lanes);
    totals.d = fmaf(dy, x, totals.d);
    const float slope = s_sum * sigmoid(raw);  // the derivative of the softplus
    totals.bias += slope;
    __syncwarp();  // du may lie where other lanes read dy, and ddelta where they read delta
    if (me.there && me.lane == 0) {
      put(in * fmaf(d, x, y) * (open * (1.0f + z * (1.0f - open))), q.dgate[s.gate_at(b, t, me.e)]);
      put(fmaf(d, dy, x_sum), q.du[s.at(b, t, me.e)]);
      put(slope, q.ddelta[s.at(b, t, me.e)]);
    }
    sum_channels(dbc, s.lanes, half, room.dbc[warp][k] + me.first);
  }
}

template <class T, bool packed>
__global__ void __launch_bounds__(scan_block, 3) scan_grad(ScanGradOf<T> q) {
  ScanGradShared& room = shared<ScanGradShared>();
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int thread = static_cast<int>(threadIdx.x), half = grad_states * s.lanes;
  for (int64_t of = blockIdx.y; of < s.batch * s.spans; of += gridDim.y)
    for (int64_t group = blockIdx.x; group < s.groups(); group += gridDim.x) {
      const int64_t b = of / s.spans, span = of % s.spans, end = s.end(span);
      const Lane me(s, group);
      float rate[grad_states], g[grad_states] = {};
      Totals totals;
      me.load_rates(p.a_log, rate);
      const float bias = p.dt_bias[me.e];
      if (span + 1 < s.spans) me.load(q.after, of + 1, g);
      const int64_t first_chunk = span * s.span, last_chunk = (end - 1) / chunk;
      for (int64_t c = last_chunk; c >= first_chunk; --c) {
        float h[grad_states];
        me.load(q.kept, b * s.chunks + c, h);
        const auto load_part = [&](int64_t first) {
          return load_tile<packed>(p, b, first, s.tokens, part_tokens, 2 * half, room.bc);
        };
        for (int part = 0; part < parts; ++part) {
          const int64_t first = c * chunk + part * part_tokens;
          ENG_UNROLL
          for (int n = 0; n < grad_states; ++n) room.before[part][n][thread] = h[n];
          if (part == parts - 1 || first + part_tokens >= s.tokens) break;  // nobody asks for what comes after
          const unsigned begins = load_part(first);
          const Part walked(p, me, rate, bias, room.bc, b, first, part_tokens, begins, h);
          ENG_UNROLL
          for (int n = 0; n < grad_states; ++n) h[n] = walked.after[part_tokens - 1][n];
        }
        for (int part = parts - 1; part >= 0; --part) {
          const int64_t first = c * chunk + part * part_tokens;
          if (first >= s.tokens) continue;
          const unsigned begins = load_part(first);
          ENG_UNROLL
          for (int n = 0; n < grad_states; ++n) h[n] = room.before[part][n][thread];
          grad_of_part(q, room, b, first, begins, me, rate, h, g, totals);
          __syncthreads();
          // Over the warps; then over the groups of this block, one after another.
          for (int i = thread; i < part_tokens * 2 * half; i += scan_block) {
            const int k = i / (2 * half), column = i % (2 * half), n = column % half;
            if (first + k >= s.tokens || n >= s.states) continue;
            float sum = 0;
            for (int w = 0; w < scan_warps; ++w) sum += room.dbc[w][k][column];
            float* const out = q.dbc + ((b * q.blocks + blockIdx.x) * s.tokens + first + k) * 2 * s.states +
                               (column < half ? n : s.states + n);
            *out = group == blockIdx.x ? sum : *out + sum;
          }
        }
      }
      float* const sums = q.sums + of * (s.states + 2) * s.channels;
      me.store(totals.a, sums, 0);
      if (me.there && me.lane == 0)
        sums[s.states * s.channels + me.e] = totals.d, sums[(s.states + 1) * s.channels + me.e] = totals.bias;
    }
}

// What each span but the first, alone, adds to the gradient of the states before it.
template <class T, bool packed>
__global__ void __launch_bounds__(scan_block, 3) scan_grad_ends(ScanGradOf<T> q) {
  float* const tile = shared<float[part_tokens * 2 * most_states]>();
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int half = grad_states * s.lanes;
  const Lane me(s, blockIdx.x);
  float rate[grad_states];
  me.load_rates(p.a_log, rate);
  const float bias = p.dt_bias[me.e];
  for (int64_t of = blockIdx.y; of < s.batch * (s.spans - 1); of += gridDim.y) {
    const int64_t b = of / (s.spans - 1), span = of % (s.spans - 1) + 1, begin = s.first(span), end = s.end(span);
    float g[grad_states] = {}, all_steps = 0;
    unsigned cut = 0;
    for (int64_t first = (end - 1) / part_tokens * part_tokens; first >= begin; first -= part_tokens) {
      const unsigned begins = load_tile<packed>(p, b, first, end, part_tokens, 2 * half, tile);
      cut |= begins;
      float by[part_tokens], dy[part_tokens];
      ENG_UNROLL
      for (int k = 0; k < part_tokens; ++k) {
        const int64_t t = first + k;
        const bool there = me.there && t < end;
        const float z = there ? value(p.gate[s.gate_at(b, t, me.e)]) : 0.0f;
        by[k] = there ? softplus(value(p.delta[s.at(b, t, me.e)]) + bias) : 0.0f;
        dy[k] = there ? value(q.dy[s.at(b, t, me.e)]) * z * sigmoid(z) : 0.0f;
      }
      ENG_UNROLL
      for (int k = part_tokens - 1; k >= 0; --k) {
        if (first + k >= end) continue;
        all_steps += by[k];
        ENG_UNROLL
        for (int n = 0; n < grad_states; ++n)
          g[n] = begins >> k & 1
                     ? 0.0f
                     : fmaf(tile[k * 2 * half + half + me.first + n], dy[k], g[n]) * exp2_approx(by[k] * rate[n]);
      }
    }
    me.store(g, q.after, b * s.spans + span);
    if (me.there && me.lane == 0) q.steps[(b * s.spans + span) * s.channels + me.e] = cut ? cut_span : all_steps;
  }
}

// dbc of each token: the sum over the blocks, in order.
template <class T>
struct SumBlocksOf {
  static constexpr int width = 1;
  const float* dbc;
  T* out;
  int64_t blocks, each;  // elements of a sequence
  template <int>
  __device__ void at(int64_t i) const {
    const float* from = dbc + i / each * blocks * each + i % each;
    float sum = 0;
    for (int64_t block = 0; block < blocks; ++block, from += each) sum += *from;
    put(sum, out[i]);
  }
};
// da_log (E, N), dd and ddt_bias (E): the sum over sequences and spans, in order.
struct SumSpansOf {
  static constexpr int width = 1;
  const float* sums;
  float *da_log, *dd, *dbias;
  ScanSizes s;
  template <int>
  __device__ void at(int64_t i) const {
    const int64_t n = i / s.channels, e = i % s.channels;
    float sum = 0;
    for (int64_t k = 0; k < s.batch * s.spans; ++k) sum += sums[k * (s.states + 2) * s.channels + i];
    (n < s.states ? da_log[e * s.states + n] : n == s.states ? dd[e] : dbias[e]) = sum;
  }
};

struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  static constexpr size_t segments = 9;
  int32_t type;
  ScanSizes s;
  static ScanSizes sizes(const Call& c) { return scan_sizes(c, 1, grad_states, true); }
  static void check(const Call& c) {
    need_counts(c, 9, 10, 7, 7), need_float(c.in[1], "u");
    need_types(c, c.in[1].dtype, {0, 2, 4, 7}, {0, 1, 3, 6}, "dy, delta, bc, gate or one of their gradients");
    need_types(c, ENG_F32, {3, 5, 6, 8}, {2, 4, 5}, "a_log, d, dt_bias, one of their gradients or the states");
    const ScanSizes s = sizes(c);
    need_scan(c, 1, s), need_size(c.in[0], s.batch * s.tokens * s.channels, "dy");
    need_size(c.in[8], s.batch * s.chunks * s.states * s.channels, "the states");
    for (size_t k = 0; k < 7; ++k) need_size(c.out[k], elements(c.in[1 + k]), "a gradient");
    need_segments(c, segments, s.batch * s.tokens);
  }
  // Where the parts of the scratch memory begin, in floats; the sums are the first.
  struct Parts {
    int64_t blocks, dbc, after, steps, end;
    explicit Parts(const ScanSizes& s)
        : blocks(s.groups() < most_groups ? s.groups() : most_groups),
          dbc(s.batch * s.spans * (s.states + 2) * s.channels),
          after(dbc + s.batch * blocks * s.tokens * 2 * s.states),
          steps(after + (s.spans > 1 ? s.batch * s.spans * s.states * s.channels : 0)),
          end(steps + (s.spans > 1 ? s.batch * s.spans * s.channels : 0)) {}
  };
  static uint64_t workspace(const Call& c) { return sizeof(float) * static_cast<uint64_t>(Parts(sizes(c)).end); }
  explicit ScanGrad(const Call& c) : type(c.in[1].dtype), s(sizes(c)) {}
  void run(const Args& a, cudaStream_t stream) const {
    if (s.batch * s.tokens == 0) return;
    by_type(type, [&]<class T>(T) {
      const Parts parts(s);
      float* const sums = a.scratch<float>();
      const int64_t each = s.tokens * 2 * s.states;
      ScanGradOf<T> q{};
      q.forward = scan_of<T>(a, 1, s, a.in<int32_t>(segments)), q.dy = a.in<T>(0), q.kept = a.in<float>(8);
      q.du = a.out<T>(0), q.ddelta = a.out<T>(1), q.dgate = a.out<T>(6);
      q.sums = sums, q.dbc = sums + parts.dbc, q.after = sums + parts.after, q.steps = sums + parts.steps;
      q.blocks = parts.blocks;
      const auto walk = [&]<bool packed>() {
        if (s.spans > 1) {
          launch<scan_grad_ends<T, packed>>(grid_of(s.groups(), 1, s.batch * (s.spans - 1)), scan_block,
                                            sizeof(float[part_tokens * 2 * most_states]), stream, q);
          launch_each(s.batch * s.states * s.channels, stream,
                      HandOver{q.forward.a_log, q.steps, q.after, s.spans, 1, true, s});
        }
        launch<scan_grad<T, packed>>(grid_of(q.blocks, 1, s.batch * s.spans), scan_block, sizeof(ScanGradShared),
                                     stream, q);
      };
      q.forward.s.segments ? walk.template operator()<true>() : walk.template operator()<false>();
      launch_each(s.batch * each, stream, SumBlocksOf<T>{q.dbc, a.out<T>(3), parts.blocks, each});
      launch_each((s.states + 2) * s.channels, stream,
                  SumSpansOf{sums, a.out<float>(2), a.out<float>(4), a.out<float>(5), s});
      clear(q.dgate, s, stream);
    });
  }
};

}  // namespace on_cuda

void add_scan_grad(std::vector<const eng_kernel*>& list) {
  list.push_back(&cuda::kernel<on_cuda::ScanGrad>);
}

}  // namespace mamba
