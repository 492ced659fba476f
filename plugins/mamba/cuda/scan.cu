// SPDX-License-Identifier: Apache-2.0
// selective_scan, its gradient and its step (Gu and Dao 2023). Tokens follow one another in a thread, whose registers
// hold the states of its channel; if they are many, a power of two of neighbouring lanes shares them. Sums have one
// order, so two runs have the same bits.
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int scan_block = 128, scan_tile = 16;  // threads; tokens whose B and C are in shared memory at once
constexpr int most_states = 64;

struct ScanSizes {
  int64_t batch, tokens, channels, stride, chunks;
  int states, lanes;  // lanes that share a channel
  __host__ __device__ int64_t groups() const { return (channels * lanes + scan_block - 1) / scan_block; }
};

template <class T>
struct ScanOf {
  const T *u, *delta, *bc, *gate;
  const float *a_log, *d, *dt_bias;
  ScanSizes s;
  // softplus(delta + dt_bias), which is 0 after the last token: such a token changes no state.
  __device__ float step_of(int64_t b, int64_t t, int64_t e, float bias) const {
    return t < s.tokens ? softplus(to_f32(delta[(b * s.tokens + t) * s.channels + e]) + bias) : 0.0f;
  }
  __device__ float u_of(int64_t b, int64_t t, int64_t e) const {
    return t < s.tokens ? to_f32(u[(b * s.tokens + t) * s.channels + e]) : 0.0f;
  }
  __device__ int64_t gate_at(int64_t b, int64_t t, int64_t e) const {
    return (b * s.tokens + t) * s.stride + (s.stride - s.channels) + e;
  }
};

// B and C of tokens first .. first + count - 1, by all threads of the block. `width`: that of a row of `tile`, which
// holds B in its first half and C in the second; states that a channel does not have are 0.
template <class T>
__device__ void load_bc(const ScanOf<T>& p, int64_t b, int64_t first, int count, int width, float* tile) {
  const int half = width / 2;
  for (int i = static_cast<int>(threadIdx.x); i < count * width; i += scan_block) {
    const int64_t t = first + i / width;
    const int column = i % width, n = column % half;
    const bool there = t < p.s.tokens && n < p.s.states;
    tile[i] = there ? to_f32(p.bc[(b * p.s.tokens + t) * 2 * p.s.states + (column < half ? n : p.s.states + n)]) : 0.0f;
  }
}

// The sum over the lanes of a channel, to all of them.
__device__ __forceinline__ float sum_of_lanes(float x, int lanes) {
  for (int by = lanes / 2; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}

// What a thread is: a lane of a channel, with states first .. first + S - 1.
template <int S>
struct Place {
  int64_t e;
  int lane, first;
  bool there;
  __device__ explicit Place(const ScanSizes& s, int64_t group) {
    const int64_t at = group * scan_block + threadIdx.x;
    e = at / s.lanes, lane = static_cast<int>(at % s.lanes), first = lane * S;
    there = e < s.channels;
    if (!there) e = s.channels - 1;  // computes what nobody keeps
  }
};
// -exp(a_log) / ln 2: exp(s A) = exp2(s rate).
template <int S>
__device__ __forceinline__ void load_rates(const float* a_log, const ScanSizes& s, const Place<S>& at, float (&rate)[S]) {
#pragma unroll
  for (int n = 0; n < S; ++n)
    rate[n] = at.first + n < s.states ? -1.44269504f * expf(a_log[at.e * s.states + at.first + n]) : 0.0f;
}

// S states in each lane. `kept`: states before each chunk, or, for a step, those that running sequences go on with.
template <class T, int S, bool step>
__global__ void __launch_bounds__(scan_block) scan(ScanOf<T> p, T* y, float* kept) {
  float* const tile = cuda::shared<float[scan_tile * 2 * most_states]>();
  const ScanSizes& s = p.s;
  const Place<S> me(s, blockIdx.x);
  const int width = 2 * S * s.lanes;
  float rate[S];
  load_rates(p.a_log, s, me, rate);
  const float bias = p.dt_bias[me.e], d = p.d[me.e];
  for (int64_t b = blockIdx.y; b < s.batch; b += gridDim.y) {
    float h[S];
#pragma unroll
    for (int n = 0; n < S; ++n)
      h[n] = step && me.first + n < s.states ? kept[(b * s.states + me.first + n) * s.channels + me.e] : 0.0f;
    for (int64_t first = 0; first < s.tokens; first += scan_tile) {
      __syncthreads();
      load_bc(p, b, first, scan_tile, width, tile);
      __syncthreads();
      if (!step && first % chunk == 0 && me.there) {
#pragma unroll
        for (int n = 0; n < S; ++n)
          if (me.first + n < s.states)
            kept[((b * s.chunks + first / chunk) * s.states + me.first + n) * s.channels + me.e] = h[n];
      }
      for (int k = 0; k < scan_tile && first + k < s.tokens; ++k) {
        const int64_t t = first + k;
        const float* const row = tile + k * width + me.first;
        const float by = p.step_of(b, t, me.e, bias), x = p.u_of(b, t, me.e), input = by * x;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < S; ++n) {
          h[n] = fmaf(exp2f(by * rate[n]), h[n], input * row[n]);
          sum = fmaf(row[width / 2 + n], h[n], sum);
        }
        sum = sum_of_lanes(sum, s.lanes);
        if (me.lane != 0 || !me.there) continue;
        const float z = to_f32(p.gate[p.gate_at(b, t, me.e)]);
        from_f32(fmaf(d, x, sum) * (z * sigmoid(z)), y[(b * s.tokens + t) * s.channels + me.e]);
      }
    }
    if (!step || !me.there) continue;
#pragma unroll
    for (int n = 0; n < S; ++n)
      if (me.first + n < s.states) kept[(b * s.states + me.first + n) * s.channels + me.e] = h[n];
  }
}

// ---- the gradient ----------------------------------------------------------------------------------------------

// Four states in each lane. A chunk is walked twice: forward for the states before each of its parts, then part by part
// from the last to the first, for which the states of all its tokens are computed again, into registers.
constexpr int grad_states = 4, part_tokens = 8, parts = static_cast<int>(chunk) / part_tokens;
constexpr int scan_warps = scan_block / 32, most_groups = 32;

template <class T>
struct ScanGradOf {
  ScanOf<T> forward;
  const T* dy;
  const float* kept;
  T *du, *ddelta, *dgate;
  float* dbc;    // (B, blocks, T, 2N): of the channels of a block
  float* sums;   // (B, N + 2, E): of a_log, d, dt_bias
  int64_t blocks;
};

struct ScanGradShared {
  float before[parts][grad_states][scan_block];         // each thread's own
  float bc[part_tokens * 2 * most_states];              // rows of [B | C], without gaps
  float dbc[scan_warps][part_tokens][2 * most_states];  // of each warp
};

// One part: from `h`, the states before it, to the gradients of its tokens. `g`: the gradient of the states after it,
// which becomes that of the states before it.
template <class T>
__device__ void grad_of_part(const ScanGradOf<T>& q, ScanGradShared& room, int64_t b, int64_t first,
                             const Place<grad_states>& me, const float (&rate)[grad_states],
                             const float (&h)[grad_states], float (&g)[grad_states], float (&a_sum)[grad_states],
                             float& d_sum, float& bias_sum) {
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int half = grad_states * s.lanes, warp = static_cast<int>(threadIdx.x) / 32;
  const float bias = p.dt_bias[me.e], d = p.d[me.e];
  float by[part_tokens], x[part_tokens], after[part_tokens][grad_states];
#pragma unroll
  for (int k = 0; k < part_tokens; ++k) {
    by[k] = p.step_of(b, first + k, me.e, bias), x[k] = p.u_of(b, first + k, me.e);
#pragma unroll
    for (int n = 0; n < grad_states; ++n)
      after[k][n] = fmaf(exp2f(by[k] * rate[n]), k ? after[k > 0 ? k - 1 : 0][n] : h[n],
                         by[k] * x[k] * room.bc[k * 2 * half + me.first + n]);
  }
#pragma unroll
  for (int k = part_tokens - 1; k >= 0; --k) {
    const int64_t t = first + k, at = (b * s.tokens + t) * s.channels + me.e;
    const bool there = me.there && t < s.tokens;
    const float in = there ? to_f32(q.dy[at]) : 0.0f, z = there ? to_f32(p.gate[p.gate_at(b, t, me.e)]) : 0.0f;
    const float open = sigmoid(z), dy = in * z * open;
    float y = 0, x_sum = 0, s_sum = 0, db[grad_states], dc[grad_states];
#pragma unroll
    for (int n = 0; n < grad_states; ++n) {
      const float b_t = room.bc[k * 2 * half + me.first + n], c_t = room.bc[k * 2 * half + half + me.first + n];
      const float decay = exp2f(by[k] * rate[n]), kept = decay * (k ? after[k > 0 ? k - 1 : 0][n] : h[n]);
      constexpr float ln2 = 0.693147181f;
      y = fmaf(c_t, after[k][n], y);
      g[n] = fmaf(c_t, dy, g[n]);
      dc[n] = dy * after[k][n], db[n] = g[n] * (by[k] * x[k]);
      x_sum = fmaf(g[n] * by[k], b_t, x_sum);
      const float slope = rate[n] * ln2 * kept;
      s_sum = fmaf(g[n], fmaf(b_t, x[k], slope), s_sum);
      a_sum[n] = fmaf(g[n] * by[k], slope, a_sum[n]);
      g[n] *= decay;
    }
    y = sum_of_lanes(y, s.lanes), x_sum = sum_of_lanes(x_sum, s.lanes), s_sum = sum_of_lanes(s_sum, s.lanes);
    d_sum = fmaf(dy, x[k], d_sum);
    const float slope = s_sum * -expm1f(-by[k]);  // the derivative of the softplus
    if (there) bias_sum += slope;
    if (there && me.lane == 0) {
      from_f32(in * fmaf(d, x[k], y) * (open * (1.0f + z * (1.0f - open))), q.dgate[p.gate_at(b, t, me.e)]);
      from_f32(fmaf(d, dy, x_sum), q.du[at]);
      from_f32(slope, q.ddelta[at]);
    }
    // Over the channels of the warp.
#pragma unroll
    for (int n = 0; n < grad_states; ++n) {
      for (int step = s.lanes; step < 32; step *= 2) {
        db[n] += __shfl_xor_sync(0xffffffffu, db[n], step);
        dc[n] += __shfl_xor_sync(0xffffffffu, dc[n], step);
      }
      if (static_cast<int>(threadIdx.x) % 32 < s.lanes) {
        room.dbc[warp][k][me.first + n] = db[n];
        room.dbc[warp][k][half + me.first + n] = dc[n];
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(scan_block) scan_grad(ScanGradOf<T> q) {
  ScanGradShared& room = cuda::shared<ScanGradShared>();
  const ScanOf<T>& p = q.forward;
  const ScanSizes& s = p.s;
  const int thread = static_cast<int>(threadIdx.x), half = grad_states * s.lanes;
  for (int64_t b = blockIdx.y; b < s.batch; b += gridDim.y)
    for (int64_t group = blockIdx.x; group < s.groups(); group += gridDim.x) {
      const Place<grad_states> me(s, group);
      float rate[grad_states], g[grad_states] = {}, a_sum[grad_states] = {}, d_sum = 0, bias_sum = 0;
      load_rates(p.a_log, s, me, rate);
      const float bias = p.dt_bias[me.e];
      for (int64_t c = s.chunks - 1; c >= 0; --c) {
        float h[grad_states];
#pragma unroll
        for (int n = 0; n < grad_states; ++n)
          h[n] = me.first + n < s.states ? q.kept[((b * s.chunks + c) * s.states + me.first + n) * s.channels + me.e]
                                         : 0.0f;
        for (int part = 0; part < parts; ++part) {
          const int64_t first = c * chunk + part * part_tokens;
#pragma unroll
          for (int n = 0; n < grad_states; ++n) room.before[part][n][thread] = h[n];
          if (part == parts - 1 || first + part_tokens >= s.tokens) continue;  // nobody asks for what comes after
          __syncthreads();
          load_bc(p, b, first, part_tokens, 2 * half, room.bc);
          __syncthreads();
          for (int k = 0; k < part_tokens; ++k) {
            const float by = p.step_of(b, first + k, me.e, bias), input = by * p.u_of(b, first + k, me.e);
#pragma unroll
            for (int n = 0; n < grad_states; ++n)
              h[n] = fmaf(exp2f(by * rate[n]), h[n], input * room.bc[k * 2 * half + me.first + n]);
          }
        }
        for (int part = parts - 1; part >= 0; --part) {
          const int64_t first = c * chunk + part * part_tokens;
          if (first >= s.tokens) continue;
          __syncthreads();
          load_bc(p, b, first, part_tokens, 2 * half, room.bc);
          __syncthreads();
#pragma unroll
          for (int n = 0; n < grad_states; ++n) h[n] = room.before[part][n][thread];
          grad_of_part(q, room, b, first, me, rate, h, g, a_sum, d_sum, bias_sum);
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
      if (!me.there) continue;
      float* const sums = q.sums + b * (s.states + 2) * s.channels + me.e;
#pragma unroll
      for (int n = 0; n < grad_states; ++n)
        if (me.first + n < s.states) sums[(me.first + n) * s.channels] = a_sum[n];
      if (me.lane == 0) sums[s.states * s.channels] = d_sum, sums[(s.states + 1) * s.channels] = bias_sum;
    }
}

// dbc of each token: the sum over the blocks, in order.
template <class T>
struct SumBlocksOf {
  const float* dbc;
  T* out;
  int64_t blocks, each;  // elements of a sequence
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) {
      const int64_t b = (i + k) / each, at = (i + k) % each;
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += dbc[(b * blocks + block) * each + at];
      from_f32(sum, out[i + k]);
    }
  }
};
// da_log (E, N), dd and ddt_bias (E): the sum over the sequences, in order.
__global__ void __launch_bounds__(scan_block)
    sum_sequences(const float* sums, int64_t batch, int64_t channels, int states, float* da_log, float* dd, float* dbias) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * scan_block + threadIdx.x;
  if (e >= channels) return;
  for (int n = 0; n < states + 2; ++n) {
    float sum = 0;
    for (int64_t b = 0; b < batch; ++b) sum += sums[(b * (states + 2) + n) * channels + e];
    (n < states ? da_log[e * states + n] : n == states ? dd[e] : dbias[e]) = sum;
  }
}

// ---- ops -------------------------------------------------------------------------------------------------------

// The inputs of a scan begin with u, delta, a_log, bc, d, dt_bias, gate; `u` is the index of the first. S: the most
// states of a lane.
ScanSizes scan_sizes(const Call& c, size_t u, int most) {
  need(c.in[u].ndim == 3, "u must be (B, T, E)");
  const int64_t states = columns(c.in[u + 2]);
  need(states >= 1 && states <= most_states, "computes 1 to 64 states of a channel");
  int lanes = 1;
  while (lanes * most < states) lanes *= 2;
  return {c.in[u].dims[0],       c.in[u].dims[1],          c.in[u].dims[2], columns(c.in[u + 6]),
          chunks(c.in[u].dims[1]), static_cast<int>(states), lanes};
}
void need_scan(const Call& c, size_t u, const ScanSizes& s) {
  const int64_t n = s.batch * s.tokens;
  need_size(c.in[u + 1], n * s.channels, "delta"), need_size(c.in[u + 2], s.channels * s.states, "a_log");
  need_size(c.in[u + 3], n * 2 * s.states, "bc"), need_size(c.in[u + 4], s.channels, "d");
  need_size(c.in[u + 5], s.channels, "dt_bias");
  need(rows(c.in[u + 6]) == n && s.stride >= s.channels, "gate must be (B, T, E or more)");
}
template <class T>
ScanOf<T> scan_of(const Args& a, size_t u, const ScanSizes& s) {
  return {a.in<T>(u),         a.in<T>(u + 1),     a.in<T>(u + 3),     a.in<T>(u + 6),
          a.in<float>(u + 2), a.in<float>(u + 4), a.in<float>(u + 5), s};
}

template <bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  static constexpr int states = 16;  // of a lane
  int32_t type;
  ScanSizes s;
  static void check(const Call& c) {
    need_counts(c, step ? 8 : 7, step ? 8 : 9, 2, 2), need_float(c.in[0], "u");
    need_types(c, c.in[0].dtype, {1, 3, 6}, {0}, "delta, bc, gate or y");
    need_types(c, ENG_F32, {2, 4, 5, step ? 7u : 5u}, {1}, "a_log, d, dt_bias or the states");
    const ScanSizes s = scan_sizes(c, 0, states);
    need_scan(c, 0, s), need_size(c.out[0], s.batch * s.tokens * s.channels, "y");
    need_size(c.out[1], s.batch * (step ? 1 : s.chunks) * s.states * s.channels, "the states");
  }
  explicit Scan(const Call& c) : type(c.in[0].dtype), s(scan_sizes(c, 0, states)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      const auto with = [&]<int S>(std::integral_constant<int, S>) {
        launch<scan<T, S, step>>(dim3(static_cast<unsigned>(s.groups()), second(s.batch)), scan_block,
                                 sizeof(float) * static_cast<size_t>(scan_tile * 2 * most_states), stream,
                                 scan_of<T>(a, 0, s), a.out<T>(0), a.out<float>(1));
      };
      if (s.states <= 8)
        with(std::integral_constant<int, 8>{});
      else
        with(std::integral_constant<int, states>{});
    });
  }
};

struct ScanGrad {
  static constexpr const char* op = MAMBA_OP_SCAN_GRAD;
  int32_t type;
  ScanSizes s;
  static void check(const Call& c) {
    need_counts(c, 9, 9, 7, 7), need_float(c.in[1], "u");
    need_types(c, c.in[1].dtype, {0, 2, 4, 7}, {0, 1, 3, 6}, "dy, delta, bc, gate or one of their gradients");
    need_types(c, ENG_F32, {3, 5, 6, 8}, {2, 4, 5}, "a_log, d, dt_bias, one of their gradients or the states");
    const ScanSizes s = scan_sizes(c, 1, grad_states);
    need_scan(c, 1, s), need_size(c.in[0], s.batch * s.tokens * s.channels, "dy");
    need_size(c.in[8], s.batch * s.chunks * s.states * s.channels, "the states");
    for (size_t k = 0; k < 7; ++k) need_size(c.out[k], elements(c.in[1 + k]), "a gradient");
  }
  static int64_t blocks_of_grid(const ScanSizes& s) { return s.groups() < most_groups ? s.groups() : most_groups; }
  static int64_t sums_of(const ScanSizes& s) { return s.batch * (s.states + 2) * s.channels; }
  static uint64_t workspace(const Call& c) {
    const ScanSizes s = scan_sizes(c, 1, grad_states);
    return sizeof(float) *
           static_cast<uint64_t>(sums_of(s) + s.batch * blocks_of_grid(s) * s.tokens * 2 * s.states);
  }
  explicit ScanGrad(const Call& c) : type(c.in[1].dtype), s(scan_sizes(c, 1, grad_states)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      float* const sums = a.scratch<float>();
      const int64_t blocks = blocks_of_grid(s), each = s.tokens * 2 * s.states;
      const ScanGradOf<T> q{scan_of<T>(a, 1, s), a.in<T>(0),  a.in<float>(8),  a.out<T>(0), a.out<T>(1),
                            a.out<T>(6),         sums + sums_of(s), sums, blocks};
      launch<scan_grad<T>>(dim3(static_cast<unsigned>(blocks), second(s.batch)), scan_block, sizeof(ScanGradShared),
                           stream, q);
      cuda::launch_each(s.batch * each, stream, SumBlocksOf<T>{q.dbc, a.out<T>(3), blocks, each});
      launch<sum_sequences>(blocks_of(s.channels, scan_block), scan_block, 0, stream, q.sums, s.batch, s.channels,
                            s.states, a.out<float>(2), a.out<float>(4), a.out<float>(5));
      clear(q.dgate, s.batch * s.tokens, s.stride, 0, s.stride - s.channels, stream);
    });
  }
};

}  // namespace on_cuda

void add_scan(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&cuda::kernel<Scan<false>>, &cuda::kernel<Scan<true>>, &cuda::kernel<ScanGrad>});
}

}  // namespace mamba
