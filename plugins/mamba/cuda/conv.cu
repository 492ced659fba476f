// SPDX-License-Identifier: Apache-2.0
// causal_conv1d, its gradient and its step. A thread goes along a run of tokens of one channel, with the last values of
// x in registers; neighbouring threads have neighbouring channels.
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int most_taps = 4, conv_block = 128, ahead = 4;                     // ahead: tokens loaded at once
constexpr int64_t conv_run = 32, grad_run = 64, step_run = int64_t{1} << 40;  // tokens of a run; a step has one

struct ConvSizes : Sequences {
  int taps;
  int64_t run, runs;  // run: tokens of one
  dim3 grid() const { return grid_of(channels, conv_block, runs, batch); }
};

// The last values of x that a thread has seen; the newest is the last one.
struct Window {
  float at[most_taps] = {};
  __device__ __forceinline__ void push(float x) {
    ENG_UNROLL
    for (int k = 1; k < most_taps; ++k) at[k - 1] = at[k];
    at[most_taps - 1] = x;
  }
};

template <class T>
struct ConvOf {
  const T *x, *w, *bias;  // bias may be null
  T* last;                // (B, K - 1, E): the tokens before, which become the last ones; or null
  T* y;
  ConvSizes s;
  // Index in `last` of token t < 0 of a sequence, t >= 1 - taps.
  __device__ int64_t last_at(int64_t b, int64_t t, int64_t e) const {
    return (b * (s.taps - 1) + s.taps - 1 + t) * s.channels + e;
  }
  // The first token after t at which a document begins, or `end`. By all lanes of a warp that have a channel.
  __device__ int64_t document_end(int64_t b, int64_t t, int64_t e, int64_t end) const {
    const int64_t left = s.channels - (e - threadIdx.x % 32);
    const int lanes = left < 32 ? static_cast<int>(left) : 32;
    for (++t; s.segments && t < end; t += lanes)
      if (const unsigned begun = s.begun(b, t, end, lanes)) return t + __ffs(static_cast<int>(begun)) - 1;
    return end;
  }
  // The values before token t that it sees.
  __device__ Window before(int64_t b, int64_t t, int64_t e) const {
    Window window;
    ENG_ROLL
    for (int64_t from = t - (s.taps - 1); from < t; ++from) {
      window.push(from >= 0 ? value(x[s.wide_at(b, from, e)]) : last ? value(last[last_at(b, from, e)]) : 0.0f);
      if (s.begins(b, from + 1)) window = {};
    }
    return window;
  }
};

// The weights of a channel, as if there were always four taps.
struct Weights {
  float w[most_taps], bias;
  template <class T>
  __device__ __forceinline__ Weights(const ConvOf<T>& p, int64_t e) : bias(p.bias ? value(p.bias[e]) : 0.0f) {
    ENG_UNROLL
    for (int k = 0; k < most_taps; ++k) {
      const int at = k - (most_taps - p.s.taps);
      w[k] = at >= 0 ? value(p.w[e * p.s.taps + at]) : 0.0f;
    }
  }
  // The convolution of a window, with the bias; y is its silu.
  __device__ __forceinline__ float before_silu(const Window& x) const {
    float sum = bias;
    ENG_UNROLL
    for (int k = 0; k < most_taps; ++k) sum = fmaf(w[k], x.at[k], sum);
    return sum;
  }
};

template <class T>
__global__ void __launch_bounds__(conv_block) conv(ConvOf<T> p) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * conv_block + threadIdx.x;
  if (e >= p.s.channels) return;
  const Weights weights(p, e);
  for (int64_t b = blockIdx.z; b < p.s.batch; b += gridDim.z)
    for (int64_t run = blockIdx.y; run < p.s.runs; run += gridDim.y) {
      const int64_t first = run * p.s.run;
      const int64_t end = first + p.s.run < p.s.tokens ? first + p.s.run : p.s.tokens;
      const T* x = p.x + p.s.wide_at(b, first, e);
      T* y = p.y + p.s.at(b, first, e);
      Window window = p.before(b, first, e);
      const auto go = [&]<int count>() {
        float next[count];
        ENG_UNROLL
        for (int k = 0; k < count; ++k, x += p.s.stride) next[k] = value(*x);
        ENG_UNROLL
        for (int k = 0; k < count; ++k, y += p.s.channels) {
          window.push(next[k]);
          const float pre = weights.before_silu(window);
          put(pre * sigmoid(pre), *y);
        }
      };
      for (int64_t t = first; t < end;) {
        if (t > first) window = {};
        const int64_t to = p.document_end(b, t, e, end);
        ENG_ROLL
        for (; t + ahead <= to; t += ahead) go.template operator()<ahead>();
        ENG_ROLL
        for (; t < to; ++t) go.template operator()<1>();
      }
      if (!p.last) continue;
      ENG_UNROLL
      for (int k = 1; k < most_taps; ++k)
        if (k > most_taps - p.s.taps) put(window.at[k], p.last[p.last_at(b, k - most_taps, e)]);
    }
}

template <class T>
struct ConvGradOf {
  ConvOf<T> forward;
  const T* dy;
  T* dx;         // holds dx_acc if `add`
  float* parts;  // (B, runs, 4 + 1, E): the gradients of the weights and of the bias
  bool add;
};

template <class T>
__global__ void __launch_bounds__(conv_block) conv_grad(ConvGradOf<T> g) {
  constexpr int later = most_taps - 1;  // tokens until the gradient of one is known, as if there were always four taps
  const ConvOf<T>& p = g.forward;
  const int64_t e = static_cast<int64_t>(blockIdx.x) * conv_block + threadIdx.x;
  if (e >= p.s.channels) return;
  const Weights weights(p, e);
  for (int64_t b = blockIdx.z; b < p.s.batch; b += gridDim.z)
    for (int64_t run = blockIdx.y; run < p.s.runs; run += gridDim.y) {
      const int64_t first = run * p.s.run;
      const int64_t end = first + p.s.run < p.s.tokens ? first + p.s.run : p.s.tokens;
      const int64_t seen = end + later < p.s.tokens ? end + later : p.s.tokens;
      float dw[most_taps] = {}, dbias = 0;
      Window window = p.before(b, first, e), slopes;  // slopes: before the silu
      for (int64_t t = first; t < end; window = {}) {
        const int64_t begin = t, document = p.document_end(b, t, e, seen), to = document < end ? document : end;
        const T *x = p.x + p.s.wide_at(b, t, e), *dy = g.dy + p.s.at(b, t, e);
        T* dx = g.dx + p.s.wide_at(b, t, e);
        // The next tokens. `inside`: they are of the document; `own`: of this run; `known`: dx of the tokens that come
        // `later` before them is.
        const auto go = [&]<int count>(bool inside, bool own, bool known) {
          float next[count], dy_of[count], acc[count];
          ENG_UNROLL
          for (int k = 0; k < count; ++k, x += p.s.stride, dy += p.s.channels) {
            if (inside) next[k] = value(*x), dy_of[k] = value(*dy);
            acc[k] = g.add && known ? value(dx[k * p.s.stride]) : 0.0f;
          }
          ENG_UNROLL
          for (int k = 0; k < count; ++k) {
            float slope = 0;
            if (inside) {
              window.push(next[k]);
              const float pre = weights.before_silu(window), open = sigmoid(pre);
              slope = dy_of[k] * open * fmaf(pre, 1.0f - open, 1.0f);
            }
            slopes.push(slope);
            if (own) {
              ENG_UNROLL
              for (int n = 0; n < most_taps; ++n) dw[n] = fmaf(slope, window.at[n], dw[n]);
              dbias += slope;
            }
            ENG_UNROLL
            for (int n = 0; n < most_taps; ++n)
              acc[k] = fmaf(weights.w[n], slopes.at[later - n], acc[k]);  // the newest had tap 0
            if (known) put(acc[k], *dx), dx += p.s.stride;
          }
        };
        ENG_ROLL
        for (; t < begin + later; ++t) go.template operator()<1>(t < document, t < to, false);
        ENG_ROLL
        for (; t + ahead <= to; t += ahead) go.template operator()<ahead>(true, true, true);
        ENG_ROLL
        for (; t < to + later; ++t) go.template operator()<1>(t < document, t < to, true);
        t = to;
      }
      float* const out = g.parts + (b * p.s.runs + run) * (most_taps + 1) * p.s.channels + e;
      ENG_UNROLL
      for (int k = 0; k < most_taps; ++k) out[k * p.s.channels] = dw[k];
      out[most_taps * p.s.channels] = dbias;
    }
}

// The sums over sequences and runs: each row of threads sums every eighth part, in order; then the rows, in order.
// Grid: channels, and the four taps and the bias.
constexpr int sum_columns = 32, sum_rows = 8;
using SumsRoom = float[sum_rows][sum_columns];
template <class S>
__global__ void __launch_bounds__(sum_columns* sum_rows)
    conv_sums(const float* parts, int64_t n, int64_t channels, int taps, S* dw, S* dbias) {
  SumsRoom& room = shared<SumsRoom>();
  const int64_t e = static_cast<int64_t>(blockIdx.x) * sum_columns + threadIdx.x;
  const int k = static_cast<int>(blockIdx.y), at = k - (most_taps - taps);
  float sum = 0;
  for (int64_t part = threadIdx.y; part < n && e < channels; part += sum_rows)
    sum += parts[(part * (most_taps + 1) + k) * channels + e];
  room[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || e >= channels) return;
  float all = 0;
  for (int row = 0; row < sum_rows; ++row) all += room[row][threadIdx.x];
  if (k < most_taps && at >= 0) put(all, dw[e * taps + at]);
  if (k == most_taps && dbias) put(all, dbias[e]);
}

// ---- ops -------------------------------------------------------------------------------------------------------

ConvSizes conv_sizes(const Call& c, size_t x, size_t w, int64_t run) {
  need(c.in[x].ndim == 3 && c.in[w].ndim == 3, "x must be (B, T, E or more), w (E, 1, K)");
  const int64_t *of_x = c.in[x].dims, *of_w = c.in[w].dims;
  need(of_w[2] >= 2 && of_w[2] <= most_taps, "K must be 2 to 4");
  need(of_x[2] >= of_w[0], "x has fewer columns than w has channels");
  return {{of_x[0], of_x[1], of_w[0], of_x[2], nullptr}, static_cast<int>(of_w[2]), run, (of_x[1] + run - 1) / run};
}

template <bool step>
struct Conv {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  static constexpr size_t bias = step ? 3 : 2, segments = 3;  // a step has none
  int32_t type;
  ConvSizes s;
  static ConvSizes sizes(const Call& c) { return conv_sizes(c, 0, 1, step ? step_run : conv_run); }
  static void check(const Call& c) {
    need_counts(c, step ? 3 : 2, 4, step ? 2 : 1, step ? 2 : 1), need_float(c.in[0], "x");
    need_types(c, c.in[0].dtype, {1, 2, step ? 3u : 2u}, {0, 1}, "w, bias, last or y");
    const ConvSizes s = sizes(c);
    need_size(c.out[0], s.batch * s.tokens * s.channels, "y");
    if (c.has(bias)) need_size(c.in[bias], s.channels, "bias");
    if (step)
      need_size(c.in[2], s.batch * (s.taps - 1) * s.channels, "last");
    else
      need_segments(c, segments, s.batch * s.tokens);
  }
  explicit Conv(const Call& c) : type(c.in[0].dtype), s(sizes(c)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      // The state is in place: what is read of it is output 1.
      ConvOf<T> p{a.in<T>(0), a.in<T>(1), a.in<T>(bias), step ? a.out<T>(1) : nullptr, a.out<T>(0), s};
      if (!step) p.s.segments = a.in<int32_t>(segments);
      launch<conv<T>>(s.grid(), conv_block, 0, stream, p);
    });
  }
};

struct ConvGrad {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  static constexpr size_t segments = 5;
  int32_t type, sums;
  ConvSizes s;
  bool bias, add;
  static ConvSizes sizes(const Call& c) { return conv_sizes(c, 1, 2, grad_run); }
  static void check(const Call& c) {
    need_counts(c, 3, 6, 2, 3), need_float(c.in[0], "dy");
    need_types(c, c.in[0].dtype, {1, 2, 3, 4}, {0}, "x, w, bias, dx_acc or dx");
    if (c.out[1].dtype != ENG_F32) need_type(c.out[1], c.in[0].dtype, "dw");
    if (c.has_out(2)) need_type(c.out[2], c.out[1].dtype, "dbias");
    const ConvSizes s = sizes(c);
    need_size(c.in[0], s.batch * s.tokens * s.channels, "dy");
    need_size(c.out[0], s.batch * s.tokens * s.stride, "dx"), need_size(c.out[1], s.channels * s.taps, "dw");
    if (c.has(3)) need_size(c.in[3], s.channels, "bias"), need(c.has_out(2), "with a bias it has a gradient");
    if (c.has(4)) need_size(c.in[4], elements(c.out[0]), "dx_acc");
    need_segments(c, segments, s.batch * s.tokens);
  }
  static uint64_t workspace(const Call& c) {
    const ConvSizes s = sizes(c);
    return sizeof(float) * static_cast<uint64_t>(s.batch * s.runs * (most_taps + 1) * s.channels);
  }
  explicit ConvGrad(const Call& c)
      : type(c.in[0].dtype), sums(c.out[1].dtype), s(sizes(c)), bias(c.has(3)), add(c.has(4)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      const ConvOf<T> forward{a.in<T>(1), a.in<T>(2), a.in<T>(3), nullptr, nullptr, s};
      ConvGradOf<T> g{forward, a.in<T>(0), a.out<T>(0), a.scratch<float>(), add};
      g.forward.s.segments = a.in<int32_t>(segments);
      launch<conv_grad<T>>(s.grid(), conv_block, 0, stream, g);
      launch<conv_sums<S>>(grid_of(s.channels, sum_columns, most_taps + 1), dim3(sum_columns, sum_rows),
                           sizeof(SumsRoom), stream, g.parts, s.batch * s.runs, s.channels, s.taps, a.out<S>(1),
                           bias ? a.out<S>(2) : nullptr);
      if (!add) clear(g.dx + s.channels, s, stream);
    });
  }
};

}  // namespace on_cuda

void add_conv(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Conv<false>>, &kernel<Conv<true>>, &kernel<ConvGrad>});
}

}  // namespace mamba
