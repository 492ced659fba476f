// SPDX-License-Identifier: Apache-2.0
// The gradient of selective_scan. A chunk is walked twice: forward for the states before each of its parts, then part
// by part from the last to the first, for which the states of all its tokens are computed again, into registers. Sums
// have one order, so two runs have the same bits.
#include "scan.cuh"

namespace mamba {
namespace on_cuda {

constexpr int part_tokens = 8, parts = static_cast<int>(chunk) / part_tokens;
constexpr int scan_warps = scan_block / 32, most_groups = 128;

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

// Rows that the threads of a block compute together, for each token of a part and each of their channels: the step and
// the input; for a gradient also dy of the scan, the slope of the softplus, and dgate for a y of 1.
enum Row { steps, inputs, dys, slopes, gates, rows };
enum class Need { walk, ends, gradient };

struct alignas(16) ScanGradShared {
  float before[parts][lane_states][scan_block];  // each thread's own
  // Rows of [B | C] of the tokens, dbc of each warp, and the rows above. Two lanes of a channel take the most.
  float part[part_tokens * (2 * lane_states * (1 + scan_warps) + rows * scan_block)];
};

// The sum over the channels of the warp of each of 2 * left values: half of the values go to the other half of the
// lanes, and so on, as long as there are several. Writes them to `out`: of state n of the lane, the first four at n,
// the others at half + n.
template <int lanes, int left = lane_states>
__device__ __forceinline__ void sum_channels(float (&v)[2 * lane_states], float* out) {
  constexpr int half = lane_states * lanes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool up = lane & 4 * left;
  ENG_UNROLL
  for (int k = 0; k < left; ++k) {
    const float sent = up ? v[k] : v[k + left], own = up ? v[k + left] : v[k];
    v[k] = own + __shfl_xor_sync(0xffffffffu, sent, 4 * left);
  }
  out += !up ? 0 : left == lane_states ? half : left;
  if constexpr (left == 1) {
    ENG_UNROLL
    for (int by = 2; by >= lanes; by /= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], by);
    if (lane % 4 < lanes) *out = v[0];
  } else if constexpr (lanes == 4 * left) {
    ENG_UNROLL
    for (int k = 0; k < left; ++k) out[k] = v[k];
  } else {
    sum_channels<lanes, left / 2>(v, out);
  }
}

template <int lanes>
struct GradLane : Lane<lanes, part_tokens> {
  using Base = Lane<lanes, part_tokens>;
  static constexpr int dbc_at = part_tokens * Base::width, rows_at = dbc_at * (1 + scan_warps);
  template <class T>
  __device__ GradLane(const ScanOf<T>& p, int64_t group, float* part) : Base(p, group, part, part + rows_at) {}
};

// Waits for the block, and loads a part: B and C, and the rows that are needed. Returns the tokens at which a document
// begins.
template <Need need, bool packed, class T, int lanes>
__device__ __forceinline__ unsigned load_part(const ScanGradOf<T>& q, const GradLane<lanes>& me, int64_t b,
                                              int64_t first, int64_t end) {
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  return load_tile<packed, part_tokens, GradLane<lanes>::width>(p, b, first, end, me.bc, [&] {
    me.each([&](int k) {
      const int64_t t = first + me.token + k, at = s.at(b, t, me.of_e);
      const bool there = me.of_e < s.channels && t < end;
      const float raw = there ? value(p.delta[at]) + me.bias : 0.0f;
      if constexpr (need != Need::ends) me.of_column(inputs, k) = there ? value(p.u[at]) : 0.0f;
      if constexpr (need != Need::walk) {
        const float in = there ? value(q.dy[at]) : 0.0f, z = there ? value(p.gate[s.gate_at(b, t, me.of_e)]) : 0.0f;
        const float open = sigmoid(z);
        me.of_column(dys, k) = in * z * open;
        if constexpr (need == Need::gradient) {
          me.of_column(slopes, k) = sigmoid(raw);
          me.of_column(gates, k) = in * (open * (1.0f + z * (1.0f - open)));
        }
      }
      me.of_column(steps, k) = there ? softplus(raw) : 0.0f;
    });
  });
}

// The states after each token of a part. `h`: those before the first; bit k of `begins`: a document begins at token k.
struct Part {
  float after[part_tokens][lane_states];
  template <int lanes>
  __device__ __forceinline__ Part(const GradLane<lanes>& me, const float (&rate)[lane_states], unsigned begins,
                                  const float (&h)[lane_states]) {
    ENG_UNROLL
    for (int k = 0; k < part_tokens; ++k) {
      const float by = me.own[me.at(steps, k)], in = by * me.own[me.at(inputs, k)];
      float b_t[lane_states];
      cuda::load<lane_states>(me.bc + k * me.width + me.first, b_t);
      ENG_UNROLL
      for (int n = 0; n < lane_states; ++n)
        after[k][n] = fmaf(exp2_approx(by * rate[n]), before(k, n, begins, h), in * b_t[n]);
    }
  }
  // State n before token k.
  __device__ __forceinline__ float before(int k, int n, unsigned begins, const float (&h)[lane_states]) const {
    return begins >> k & 1 ? 0.0f : k ? after[k > 0 ? k - 1 : 0][n] : h[n];
  }
};

// Sums over all tokens of a thread.
struct Totals {
  float a[lane_states] = {}, d = 0, bias = 0;
};

// From the states before a part, `h`, to the gradients of its tokens: those of gate, u and delta take the places of
// what they come from. `g`: the gradient of the states after the part, which becomes that of the states before it.
template <int lanes>
__device__ __forceinline__ void grad_of_part(const GradLane<lanes>& me, int count, unsigned begins, float d,
                                             const float (&rate)[lane_states], const float (&h)[lane_states],
                                             float (&g)[lane_states], Totals& totals) {
  constexpr float ln2 = 0.693147181f;
  float* const dbc_of_warp = me.bc + me.dbc_at + static_cast<int>(threadIdx.x) / 32 * part_tokens * me.width + me.first;
  const Part part(me, rate, begins, h);
  ENG_UNROLL
  for (int k = part_tokens - 1; k >= 0; --k) {
    if (k >= count) continue;  // all threads do
    const float by = me.own[me.at(steps, k)], x = me.own[me.at(inputs, k)], dy = me.own[me.at(dys, k)];
    float y = 0, x_sum = 0, s_sum = 0, b_t[lane_states], c_t[lane_states], dbc[2 * lane_states];
    cuda::load<lane_states>(me.bc + k * me.width + me.first, b_t);
    cuda::load<lane_states>(me.bc + k * me.width + me.half + me.first, c_t);
    ENG_UNROLL
    for (int n = 0; n < lane_states; ++n) {
      const float decay = exp2_approx(by * rate[n]);
      const float slope = rate[n] * ln2 * (decay * part.before(k, n, begins, h));
      y = fmaf(c_t[n], part.after[k][n], y);
      g[n] = fmaf(c_t[n], dy, g[n]);
      dbc[n] = g[n] * (by * x), dbc[lane_states + n] = dy * part.after[k][n];
      x_sum = fmaf(g[n] * by, b_t[n], x_sum);
      s_sum = fmaf(g[n], fmaf(b_t[n], x, slope), s_sum);
      totals.a[n] = fmaf(g[n] * by, slope, totals.a[n]);
      g[n] = begins >> k & 1 ? 0.0f : g[n] * decay;
    }
    y = sum_of_lanes<lanes>(y), x_sum = sum_of_lanes<lanes>(x_sum), s_sum = sum_of_lanes<lanes>(s_sum);
    totals.d = fmaf(dy, x, totals.d);
    const float slope = s_sum * me.own[me.at(slopes, k)];
    totals.bias += slope;
    sum_channels<lanes>(dbc, dbc_of_warp + k * me.width);
    __syncwarp();  // other lanes have read these
    if (me.lane == 0) {
      me.own[me.at(gates, k)] *= fmaf(d, x, y);
      me.own[me.at(inputs, k)] = fmaf(d, dy, x_sum), me.own[me.at(steps, k)] = slope;
    }
  }
}

template <class T, int lanes, bool packed>
__global__ void __launch_bounds__(scan_block, lanes == 2            ? 2
                                              : packed || lanes > 4 ? 3
                                                                    : 4) scan_grad(ScanGradOf<T> q) {
  ScanGradShared& room = shared<ScanGradShared>();
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t of = blockIdx.y; of < s.batch * s.spans; of += gridDim.y)
    for (int64_t group = blockIdx.x; group < s.groups(); group += gridDim.x) {
      const int64_t b = of / s.spans, span = of % s.spans, end = s.end(span);
      const GradLane<lanes> me(p, group, room.part);
      float rate[lane_states], g[lane_states] = {};
      Totals totals;
      me.load_rates(p.a_log, rate);
      const float d = p.d[me.e];
      if (span + 1 < s.spans) me.load(q.after, of + 1, g);
      const int64_t first_chunk = span * s.span, last_chunk = (end - 1) / chunk;
      for (int64_t c = last_chunk; c >= first_chunk; --c) {
        float h[lane_states];
        me.load(q.kept, b * s.chunks + c, h);
        for (int part = 0; part < parts; ++part) {
          const int64_t first = c * chunk + part * part_tokens;
          ENG_UNROLL
          for (int n = 0; n < lane_states; ++n) room.before[part][n][thread] = h[n];
          if (part == parts - 1 || first + part_tokens >= s.tokens) break;  // nobody asks for what comes after
          const unsigned begins = load_part<Need::walk, packed>(q, me, b, first, s.tokens);
          const Part walked(me, rate, begins, h);
          ENG_UNROLL
          for (int n = 0; n < lane_states; ++n) h[n] = walked.after[part_tokens - 1][n];
        }
        for (int part = parts - 1; part >= 0; --part) {
          const int64_t first = c * chunk + part * part_tokens;
          if (first >= s.tokens) continue;
          const int count = first + part_tokens < s.tokens ? part_tokens : static_cast<int>(s.tokens - first);
          const unsigned begins = load_part<Need::gradient, packed>(q, me, b, first, s.tokens);
          ENG_UNROLL
          for (int n = 0; n < lane_states; ++n) h[n] = room.before[part][n][thread];
          grad_of_part(me, count, begins, d, rate, h, g, totals);
          __syncthreads();
          me.each([&](int k) {
            if (me.token + k >= count || me.of_e >= s.channels) return;
            const int64_t t = first + me.token + k, at = s.at(b, t, me.of_e);
            put(me.of_column(gates, k), q.dgate[s.gate_at(b, t, me.of_e)]);
            put(me.of_column(inputs, k), q.du[at]), put(me.of_column(steps, k), q.ddelta[at]);
          });
          // Over the warps; then over the groups of this block, one after another.
          ENG_UNROLL
          for (int from = 0; from < part_tokens * me.width; from += scan_block) {
            const int i = from + thread, k = i / me.width, column = i % me.width, n = column % me.half;
            if (k >= count || n >= s.states) continue;
            float sum = 0;
            ENG_UNROLL
            for (int w = 0; w < scan_warps; ++w) sum += me.bc[me.dbc_at + w * part_tokens * me.width + i];
            float* const out = q.dbc + ((b * q.blocks + blockIdx.x) * s.tokens + first + k) * 2 * s.states +
                               (column < me.half ? n : s.states + n);
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

// For each span but the first, alone: its contribution to the gradient of the states before it.
template <class T, int lanes, bool packed>
__global__ void __launch_bounds__(scan_block, 4) scan_grad_ends(ScanGradOf<T> q) {
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const GradLane<lanes> me(p, blockIdx.x, shared<ScanGradShared>().part);
  float rate[lane_states];
  me.load_rates(p.a_log, rate);
  for (int64_t of = blockIdx.y; of < s.batch * (s.spans - 1); of += gridDim.y) {
    const int64_t b = of / (s.spans - 1), span = of % (s.spans - 1) + 1, begin = s.first(span), end = s.end(span);
    float g[lane_states] = {}, all_steps = 0;
    unsigned cut = 0;
    for (int64_t first = (end - 1) / part_tokens * part_tokens; first >= begin; first -= part_tokens) {
      const unsigned begins = load_part<Need::ends, packed>(q, me, b, first, end);
      cut |= begins;
      ENG_UNROLL
      for (int k = part_tokens - 1; k >= 0; --k) {
        if (first + k >= end) continue;
        const float by = me.own[me.at(steps, k)], dy = me.own[me.at(dys, k)];
        float c_t[lane_states];
        cuda::load<lane_states>(me.bc + k * me.width + me.half + me.first, c_t);
        all_steps += by;
        ENG_UNROLL
        for (int n = 0; n < lane_states; ++n)
          g[n] = begins >> k & 1 ? 0.0f : fmaf(c_t[n], dy, g[n]) * exp2_approx(by * rate[n]);
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
  static ScanSizes sizes(const Call& c) { return scan_sizes(c, 1, true, most_groups); }
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
  // Offsets of the parts of the scratch memory, in floats; the sums are the first.
  struct Parts {
    int64_t blocks, dbc, after, steps, end;
    explicit Parts(const ScanSizes& s)
        : blocks(s.blocks(most_groups)),
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
      const auto walk = [&]<int lanes, bool packed>() {
        if (s.spans > 1) {
          launch<scan_grad_ends<T, lanes, packed>>(grid_of(s.groups(), 1, s.batch * (s.spans - 1)), scan_block,
                                                   sizeof(ScanGradShared), stream, q);
          launch_each(s.batch * s.states * s.channels, stream,
                      HandOver{q.forward.a_log, q.steps, q.after, s.spans, 1, true, s});
        }
        launch<scan_grad<T, lanes, packed>>(grid_of(q.blocks, 1, s.batch * s.spans), scan_block, sizeof(ScanGradShared),
                                            stream, q);
      };
      by_lanes(s, [&]<int lanes>() {
        q.forward.s.segments ? walk.template operator()<lanes, true>() : walk.template operator()<lanes, false>();
      });
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
