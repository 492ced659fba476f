// SPDX-License-Identifier: Apache-2.0
// The gradient of selective_scan. A chunk is walked twice: forward for the states before each of its parts, then part
// by part from the last to the first, for which the states of all its tokens are computed again, into registers. Lanes
// have two channels, where registers and shared memory have room: they read a row of B or C for both, and add what both
// give to its gradient. Sums have one order, so two runs have the same bits.
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
  // To other elements: so many of (B, T, E) on, and of the gate.
  __device__ void move(int64_t by, int64_t gate_by) {
    forward.u += by, forward.delta += by, dy += by, du += by, ddelta += by, forward.gate += gate_by, dgate += gate_by;
  }
};

// Rows that the threads of a block compute together, for each token of a chunk and each of their channels: the step and
// the input (for the ends of spans dy of the scan). For each token of a part: dy of the scan, and sums over the states:
// y, and what they give to the gradients of the input and of the step.
enum Row { steps, inputs, rows };
enum Sum { of_y, of_input, of_step, sums, dys = sums };

template <int lanes>
struct GradLane : Lane<lanes, static_cast<int>(chunk), own_channels<lanes>> {
  using Lane<lanes, static_cast<int>(chunk), own_channels<lanes>>::Lane;
  __device__ static constexpr int of_part(int row, int k) { return (row * part_tokens + k) * GradLane::channels; }
};

template <int lanes>
struct alignas(16) ScanGradShared {
  using Own = GradLane<lanes>;
  float before[parts - 1][Own::count][scan_block];  // each thread's own
  float bc[chunk * Own::width], rows[on_cuda::rows * chunk * Own::channels];
  float part[(dys + 1) * part_tokens * Own::channels], dbc[scan_warps][part_tokens * Own::width];
};

// Half of 2 * left values go to the lane `by` from here, the others are added to those that come from there. Returns
// true if it keeps the second half, whose sums take the places of the first.
template <int left>
__device__ __forceinline__ bool share(float* v, int by) {
  const bool up = threadIdx.x & by;
  for (int k = 0; k < left; ++k) {
    const float sent = up ? v[k] : v[k + left], own = up ? v[k + left] : v[k];
    v[k] = own + __shfl_xor_sync(0xffffffffu, sent, by);
  }
  return up;
}
// The sum over the channels of the warp of each of 2 * left values. Writes them to `out`: of state n of the lane, the
// first four at n, the others at half + n.
template <int lanes, int left = lane_states>
__device__ __forceinline__ void sum_channels(float* v, float* out) {
  out += !share<left>(v, 4 * left) ? 0 : left == lane_states ? lane_states * lanes : left;
  if constexpr (left == 1) {
    for (int by = 2; by >= lanes; by /= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], by);
    if (threadIdx.x % 4 < lanes) *out = v[0];
  } else if constexpr (lanes == 4 * left) {
    for (int k = 0; k < left; ++k) out[k] = v[k];
  } else {
    sum_channels<lanes, left / 2>(v, out);
  }
}
// The sum over the lanes of a channel of each of a lane's channels; lane c gets that of channel c.
template <int lanes>
__device__ __forceinline__ float sum_of_own(float* v) {
  if (own_channels<lanes> == 2) share<1>(v, 1);
  for (int by = own_channels<lanes>; by < lanes; by *= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], by);
  return v[0];
}

// The states after each token of a part, from token `first` of a chunk on, and their decays. `h`: those before it; bit
// k of `begins`: a document begins at token first + k.
template <int lanes>
struct Part {
  static constexpr int count = GradLane<lanes>::count, own = count / lane_states;
  float after[part_tokens][count], decay[part_tokens][count];
  __device__ __forceinline__ Part(const GradLane<lanes>& me, int first, const float (&rate)[count], unsigned begins,
                                  const float (&h)[count]) {
    ENG_UNROLL
    for (int k = 0; k < part_tokens; ++k) {
      float by[own], x[own], b_t[lane_states];
      cuda::load<own>(me.own + me.at(steps, first + k), by), cuda::load<own>(me.own + me.at(inputs, first + k), x);
      cuda::load<lane_states>(me.bc + (first + k) * me.width + me.first, b_t);
      for (int i = 0; i < count; ++i) {
        const int c = i / lane_states;
        decay[k][i] = exp2_approx(by[c] * rate[i]);
        after[k][i] = fmaf(decay[k][i], before(k, i, begins, h), by[c] * x[c] * b_t[i % lane_states]);
      }
    }
  }
  // State i before token k.
  __device__ __forceinline__ float before(int k, int i, unsigned begins, const float (&h)[count]) const {
    return begins >> k & 1 ? 0.0f : k ? after[k > 0 ? k - 1 : 0][i] : h[i];
  }
};

// From the states before a part, `h`, to the sums of its tokens over states, and those of each warp over channels.
// `g`: the gradient of the states after the part, which becomes that of the states before it; `a`: the sum of g h by.
template <int lanes, bool packed, int n, class Fetch>
__device__ __forceinline__ void grad_of_part(const GradLane<lanes>& me, ScanGradShared<lanes>& room, int first,
                                             unsigned begins, const float (&rate)[n], const float (&h)[n],
                                             float (&g)[n], float (&a)[n], Fetch fetch) {
  constexpr int own = own_channels<lanes>;
  float* const part_own = room.part + threadIdx.x / lanes * own;
  const Part<lanes> part(me, first, rate, begins, h);
  ENG_UNROLL
  for (int k = part_tokens - 1; k >= 0; --k) {
    if (k == part_tokens / 2) fetch(first - part_tokens);
    float by[own], x[own], dy[own], b_t[lane_states], c_t[lane_states], dbc[2 * lane_states] = {};
    float of_states[sums][own] = {};
    cuda::load<own>(me.own + me.at(steps, first + k), by), cuda::load<own>(me.own + me.at(inputs, first + k), x);
    cuda::load<own>(part_own + me.of_part(dys, k), dy);
    cuda::load<lane_states>(me.bc + (first + k) * me.width + me.first, b_t);
    cuda::load<lane_states>(me.bc + (first + k) * me.width + me.half + me.first, c_t);
    for (int i = 0; i < n; ++i) {
      const int c = i / lane_states, m = i % lane_states;
      g[i] = fmaf(c_t[m], dy[c], g[i]);
      dbc[m] = fmaf(g[i], by[c] * x[c], dbc[m]);
      dbc[lane_states + m] = fmaf(dy[c], part.after[k][i], dbc[lane_states + m]);
      of_states[of_y][c] = fmaf(c_t[m], part.after[k][i], of_states[of_y][c]);
      of_states[of_input][c] = fmaf(g[i], b_t[m], of_states[of_input][c]);
      // Registers are too few for the decays where documents may begin.
      g[i] *= packed ? exp2_approx(by[c] * rate[i]) : part.decay[k][i];
      float slope = g[i] * part.before(k, i, 0, h);
      if (begins >> k & 1) g[i] = slope = 0;
      of_states[of_step][c] = fmaf(slope, rate[i], of_states[of_step][c]);
      a[i] = fmaf(slope, by[c], a[i]);
    }
    sum_channels<lanes>(dbc, room.dbc[threadIdx.x / 32] + k * me.width + me.first);
    for (int row = 0; row < sums; ++row) {
      const float all = sum_of_own<lanes>(of_states[row]);
      if (me.lane < own) part_own[me.of_part(row, k) + me.lane] = all;
    }
  }
}

// For the `ends` of spans: what each span but the first, alone, adds to the gradient of the states before it.
template <class T, int lanes, bool packed, bool ends>
__global__ void __launch_bounds__(scan_block, 2) scan_grad(ScanGradOf<T> q) {
  using Me = GradLane<lanes>;
  constexpr int n = Me::count, own = own_channels<lanes>, each = part_tokens / Me::apart;
  constexpr float ln2 = 0.693147181f;
  ScanGradShared<lanes>& room = shared<ScanGradShared<lanes>>();
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int thread = static_cast<int>(threadIdx.x), channels = static_cast<int>(s.channels),
            stride = static_cast<int>(s.stride);
  for (unsigned of = blockIdx.y; of < s.batch * s.spans; of += gridDim.y)
    for (unsigned group = blockIdx.x; group < s.groups(); group += gridDim.x) {
      const int64_t b = of / s.spans, span = of % s.spans, end = s.end(span), last_chunk = (end - 1) / chunk;
      if (ends && span == 0) continue;
      const Me me(p, group, room.bc, room.rows);
      float rate[n], g[n] = {}, a[n] = {}, all_d = 0, all_bias = 0, all_steps[own] = {};
      uint64_t cut = 0;
      me.load_rates(p.a_log, rate);
      const float d = me.of_e < s.channels ? p.d[me.of_e] : 0.0f;
      if (!ends && span + 1 < s.spans) me.load(q.after, of + 1, g);
      ScanGradOf<T> at = q;  // the elements of a chunk
      at.move(s.at(b, last_chunk * chunk, 0), s.gate_at(b, last_chunk * chunk, 0));
      for (int c = static_cast<int>(last_chunk); c >= span * s.span;
           --c, at.move(-chunk * s.channels, -chunk * s.stride)) {
        const int tokens = static_cast<int>(end - c * chunk < chunk ? end - c * chunk : chunk);
        const int left = me.of_e < s.channels ? tokens - me.token : 0;
        const auto index = [&](int k, int row) { return static_cast<unsigned>((me.token + k) * row + me.of_e); };
        uint64_t begins = 0;  // bit k: a document begins at token k
        if (packed) begins = uint64_t{s.begun(b, c * chunk + 32, end)} << 32 | s.begun(b, c * chunk, end);
        cut |= begins;
        // The thread's tokens of a part, as they are in memory.
        T delta[each], dy[each], gate[each];
        const auto fetch = [&](int first) {
          for (int k = 0; k < each; ++k) {
            const int token = first + k * me.apart;
            const bool there = token >= 0 && token < left;
            delta[k] = there ? at.forward.delta[index(token, channels)] : T{};
            dy[k] = there ? at.dy[index(token, channels)] : T{};
            gate[k] = there ? at.forward.gate[index(token, stride)] : T{};
          }
        };
        int part = (tokens - 1) / part_tokens;
        float h[n];
        if constexpr (!ends) fetch(part * part_tokens), me.load(q.kept, b * s.chunks + c, h);
        load_tile<false, static_cast<int>(chunk), me.width>(p, b, c * chunk, end, me.bc, [&] {
          ENG_UNROLL_BY(8)
          for (int k = 0; k < chunk; k += me.apart) {
            const bool there = me.token + k < tokens && me.of_e < s.channels;
            const float in = there ? value((ends ? at.dy : at.forward.u)[index(k, channels)]) : 0.0f;
            const float z = ends && there ? value(at.forward.gate[index(k, stride)]) : 0.0f;
            me.of_column(inputs, k) = ends ? in * z * sigmoid(z) : in;
            me.of_column(steps, k) = there ? softplus(value(at.forward.delta[index(k, channels)]) + me.bias) : 0.0f;
          }
        });
        for (; ends && part >= 0; --part) {
          for (int k = part_tokens - 1; k >= 0; --k) {
            const int token = part * part_tokens + k;
            float by[own], dys[own], c_t[lane_states];
            cuda::load<own>(me.own + me.at(steps, token), by), cuda::load<own>(me.own + me.at(inputs, token), dys);
            cuda::load<lane_states>(me.bc + token * me.width + me.half + me.first, c_t);
            for (int i = 0; i < n; ++i) {
              const float sum = fmaf(c_t[i % lane_states], dys[i / lane_states], g[i]);
              g[i] = begins >> token & 1 ? 0.0f : sum * exp2_approx(by[i / lane_states] * rate[i]);
            }
            for (int i = 0; i < own; ++i) all_steps[i] += by[i];
          }
        }
        for (int k = 0; !ends && k < part; ++k) {
          const Part<lanes> walked(me, k * part_tokens, rate, static_cast<unsigned>(begins >> k * part_tokens), h);
          for (int i = 0; i < n; ++i) room.before[k][i][thread] = h[i], h[i] = walked.after[part_tokens - 1][i];
        }
        for (; !ends && part >= 0; --part) {
          const int first = part * part_tokens;
          float open[each], slope[each];  // open: the gradient of the gate for a y of 1
          for (int k = 0; k < each; ++k) {
            const float in = value(dy[k]), z = value(gate[k]), to = sigmoid(z);
            open[k] = in * (to * (1.0f + z * (1.0f - to))), slope[k] = sigmoid(value(delta[k]) + me.bias);
            room.part[me.of_part(dys, me.token + k * me.apart) + me.column] = in * z * to;
          }
          __syncthreads();
          grad_of_part<lanes, packed>(me, room, first, static_cast<unsigned>(begins >> first), rate, h, g, a, fetch);
          __syncthreads();
          for (int k = 0; k < each; ++k) {
            const int token = first + k * me.apart;
            if (token >= left) continue;
            const auto sum = [&](int row) { return room.part[me.of_part(row, me.token + k * me.apart) + me.column]; };
            const float x = me.of_column(inputs, token), of_x = sum(of_input), own_dy = sum(dys);
            const float to_step = slope[k] * fmaf(x, of_x, ln2 * sum(of_step));
            all_d = fmaf(own_dy, x, all_d), all_bias += to_step;
            put(open[k] * fmaf(d, x, sum(of_y)), at.dgate[index(token, stride)]);
            put(fmaf(d, own_dy, me.of_column(steps, token) * of_x), at.du[index(token, channels)]);
            put(to_step, at.ddelta[index(token, channels)]);
          }
          // Over the warps; then over the groups of this block, one after another.
          for (int from = 0; from < part_tokens * me.width; from += scan_block) {
            const int i = from + thread, token = first + i / me.width, column = i % me.width, m = column % me.half;
            if (token >= tokens || m >= s.states) continue;
            float sum = 0;
            for (int w = 0; w < scan_warps; ++w) sum += room.dbc[w][i];
            float* const out = q.dbc + ((b * q.blocks + blockIdx.x) * s.tokens + c * chunk) * 2 * s.states +
                               static_cast<unsigned>(token * 2 * s.states + (column < me.half ? m : s.states + m));
            *out = group == blockIdx.x ? sum : *out + sum;
          }
          for (int i = 0; part > 0 && i < n; ++i) h[i] = room.before[part - 1][i][thread];
        }
      }
      if constexpr (ends) {
        me.store(g, q.after, of);
        for (int i = 0; i < own; ++i)
          if (me.e + i < s.channels && me.lane == 0)
            q.steps[of * s.channels + me.e + i] = cut ? cut_span : all_steps[i];
      } else {
        float* const out = q.sums + of * (s.states + 2) * s.channels;
        for (int i = 0; i < n; ++i) a[i] *= rate[i] * ln2;
        me.store(a, out, 0);
        room.before[0][0][thread] = all_d, room.before[0][1][thread] = all_bias;
        __syncthreads();
        float sum = 0;
        for (int k = 0; k < me.apart; ++k) sum += room.before[0][me.token % 2][k * me.channels + me.column];
        if (me.token < 2 && me.of_e < s.channels) out[(s.states + me.token) * s.channels + me.of_e] = sum;
      }
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
  static ScanSizes sizes(const Call& c) { return scan_sizes(c, 1, true, most_groups, true); }
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
      const dim3 grid = grid_of(q.blocks, 1, s.batch * s.spans);
      const auto walk = [&]<int lanes, bool packed>() {
        if (s.spans > 1) {
          launch<scan_grad<T, lanes, packed, true>>(grid, scan_block, sizeof(ScanGradShared<lanes>), stream, q);
          launch_each(s.batch * s.states * s.channels, stream,
                      HandOver{q.forward.a_log, q.steps, q.after, s.spans, 1, true, s});
        }
        launch<scan_grad<T, lanes, packed, false>>(grid, scan_block, sizeof(ScanGradShared<lanes>), stream, q);
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
