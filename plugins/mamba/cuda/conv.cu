// SPDX-License-Identifier: Apache-2.0
// causal_conv1d, its gradient and its step. A thread goes along a run of tokens of one channel, with the last values of
// x in registers; neighbouring threads have neighbouring channels.
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int most_taps = 4, conv_block = 128, conv_run = 32, grad_run = 64;  // tokens of a run
constexpr int ahead = 4;                                                      // tokens loaded at once

struct ConvSizes {
  int64_t batch, tokens, stride, channels;
  int taps;
  __host__ __device__ int64_t runs(int64_t run) const { return (tokens + run - 1) / run; }
};

// w of channel e, as if there were always four taps.
template <class T>
__device__ __forceinline__ void load_taps(const T* w, int64_t e, int taps, float (&out)[most_taps]) {
  ENG_UNROLL
  for (int k = 0; k < most_taps; ++k) {
    const int at = k - (most_taps - taps);
    out[k] = at >= 0 ? value(w[e * taps + at]) : 0.0f;
  }
}
__device__ __forceinline__ float product(const float (&w)[most_taps], const float (&x)[most_taps], float bias) {
  float sum = bias;
  ENG_UNROLL
  for (int k = 0; k < most_taps; ++k) sum = fmaf(w[k], x[k], sum);
  return sum;
}
__device__ __forceinline__ void clear(float (&window)[most_taps]) {
  ENG_UNROLL
  for (int k = 0; k < most_taps; ++k) window[k] = 0;
}
__device__ __forceinline__ void push(float (&window)[most_taps], float x) {
  ENG_UNROLL
  for (int k = 1; k < most_taps; ++k) window[k - 1] = window[k];
  window[most_taps - 1] = x;
}

template <class T>
struct ConvOf {
  const T *x, *w, *bias;  // bias may be null
  const T* last;          // (B, K - 1, E): the tokens before, or null
  T* y;
  ConvSizes s;
  const int32_t* segments;  // (B, T), of packed samples, or null
  __device__ int64_t at(int64_t b, int64_t t, int64_t e) const { return (b * s.tokens + t) * s.channels + e; }
  __device__ int64_t x_at(int64_t b, int64_t t, int64_t e) const { return (b * s.tokens + t) * s.stride + e; }
  // x of token t of a sequence, t >= 1 - taps.
  __device__ float x_of(int64_t b, int64_t t, int64_t e) const {
    if (t >= 0) return value(x[x_at(b, t, e)]);
    return last ? value(last[(b * (s.taps - 1) + s.taps - 1 + t) * s.channels + e]) : 0.0f;
  }
  // Whether a document begins at token t of a packed sample: nothing before it is seen.
  __device__ bool begins(int64_t b, int64_t t) const {
    return segments && t > 0 && segments[b * s.tokens + t] != segments[b * s.tokens + t - 1];
  }
  // The first token after t at which a document begins, or `end`. By all lanes of a warp that have a channel.
  __device__ int64_t document_end(int64_t b, int64_t t, int64_t e, int64_t end) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t left = s.channels - (e - lane);
    const int lanes = left < 32 ? static_cast<int>(left) : 32;
    for (++t; segments && t < end; t += lanes) {
      const unsigned begun = __ballot_sync(0xffffffffu >> (32 - lanes), t + lane < end && begins(b, t + lane));
      if (begun) return t + __ffs(static_cast<int>(begun)) - 1;
    }
    return end;
  }
  // The values before token t that it sees.
  __device__ void look_back(int64_t b, int64_t t, int64_t e, float (&window)[most_taps]) const {
    clear(window);
    ENG_ROLL
    for (int64_t from = t - (s.taps - 1); from < t; ++from) {
      push(window, x_of(b, from, e));
      if (begins(b, from + 1)) clear(window);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(conv_block) conv(ConvOf<T> p) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * conv_block + threadIdx.x;
  if (e >= p.s.channels) return;
  float w[most_taps], window[most_taps];
  load_taps(p.w, e, p.s.taps, w);
  const float bias = p.bias ? value(p.bias[e]) : 0.0f;
  for (int64_t b = blockIdx.z; b < p.s.batch; b += gridDim.z)
    for (int64_t run = blockIdx.y; run < p.s.runs(conv_run); run += gridDim.y) {
      const int64_t first = run * conv_run;
      const int64_t end = first + conv_run < p.s.tokens ? first + conv_run : p.s.tokens;
      const T* x = p.x + p.x_at(b, first, e);
      T* y = p.y + p.at(b, first, e);
      const auto go = [&]<int count>() {
        float next[count];
        ENG_UNROLL
        for (int k = 0; k < count; ++k, x += p.s.stride) next[k] = value(*x);
        ENG_UNROLL
        for (int k = 0; k < count; ++k, y += p.s.channels) {
          push(window, next[k]);
          const float pre = product(w, window, bias);
          put(pre * sigmoid(pre), *y);
        }
      };
      p.look_back(b, first, e, window);
      for (int64_t t = first; t < end; clear(window)) {
        const int64_t to = p.document_end(b, t, e, end);
        ENG_ROLL
        for (; t + ahead <= to; t += ahead) go.template operator()<ahead>();
        ENG_ROLL
        for (; t < to; ++t) go.template operator()<1>();
      }
    }
}

// The last K - 1 tokens of what has been seen.
template <class T>
__global__ void __launch_bounds__(conv_block) keep_last(ConvOf<T> p, T* last) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * conv_block + threadIdx.x;
  if (e >= p.s.channels) return;
  for (int64_t b = blockIdx.y; b < p.s.batch; b += gridDim.y) {
    float kept[most_taps] = {};
    ENG_ROLL
    for (int64_t t = p.s.tokens - (p.s.taps - 1); t < p.s.tokens; ++t) push(kept, p.x_of(b, t, e));
    ENG_UNROLL
    for (int k = 0; k < most_taps; ++k) {
      const int at = k - (most_taps - (p.s.taps - 1));
      if (at >= 0) put(kept[k], last[(b * (p.s.taps - 1) + at) * p.s.channels + e]);
    }
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
  float w[most_taps], window[most_taps];
  load_taps(p.w, e, p.s.taps, w);
  const float bias = p.bias ? value(p.bias[e]) : 0.0f;
  for (int64_t b = blockIdx.z; b < p.s.batch; b += gridDim.z)
    for (int64_t run = blockIdx.y; run < p.s.runs(grad_run); run += gridDim.y) {
      const int64_t first = run * grad_run;
      const int64_t end = first + grad_run < p.s.tokens ? first + grad_run : p.s.tokens;
      const int64_t seen = end + later < p.s.tokens ? end + later : p.s.tokens;
      float slopes[most_taps] = {}, dw[most_taps] = {}, dbias = 0;  // slopes: before the silu
      p.look_back(b, first, e, window);
      for (int64_t t = first; t < end; clear(window)) {
        const int64_t begin = t, document = p.document_end(b, t, e, seen), to = document < end ? document : end;
        const T *x = p.x + p.x_at(b, t, e), *dy = g.dy + p.at(b, t, e);
        T* dx = g.dx + p.x_at(b, t, e);
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
              push(window, next[k]);
              const float pre = product(w, window, bias), open = sigmoid(pre);
              slope = dy_of[k] * open * fmaf(pre, 1.0f - open, 1.0f);
            }
            push(slopes, slope);
            if (own) {
              ENG_UNROLL
              for (int n = 0; n < most_taps; ++n) dw[n] = fmaf(slope, window[n], dw[n]);
              dbias += slope;
            }
            ENG_UNROLL
            for (int n = 0; n < most_taps; ++n) acc[k] = fmaf(w[n], slopes[later - n], acc[k]);  // the newest had tap 0
            if (known) put(acc[k], *dx), dx += p.s.stride;
          }
        };
        while (t < to + later)
          if (t >= begin + later && t + ahead <= to)
            go.template operator()<ahead>(true, true, true), t += ahead;
          else
            go.template operator()<1>(t < document, t < to, t >= begin + later), ++t;
        t = to;
      }
      float* const out = g.parts + (b * p.s.runs(grad_run) + run) * (most_taps + 1) * p.s.channels + e;
      ENG_UNROLL
      for (int k = 0; k < most_taps; ++k) out[k * p.s.channels] = dw[k];
      out[most_taps * p.s.channels] = dbias;
    }
}

// The sums over sequences and runs: each row of threads sums every eighth part, in order; then the rows, in order.
constexpr int sum_columns = 32, sum_rows = 8;
template <class S>
__global__ void __launch_bounds__(sum_columns* sum_rows)
    conv_sums(const float* parts, int64_t n, int64_t channels, int taps, S* dw, S* dbias) {
  using Room = float[sum_rows][most_taps + 1][sum_columns];
  Room& room = cuda::shared<Room>();
  const int64_t e = static_cast<int64_t>(blockIdx.x) * sum_columns + threadIdx.x;
  float sum[most_taps + 1] = {};
  for (int64_t part = threadIdx.y; part < n && e < channels; part += sum_rows) {
    ENG_UNROLL
    for (int k = 0; k <= most_taps; ++k) sum[k] += parts[(part * (most_taps + 1) + k) * channels + e];
  }
  ENG_UNROLL
  for (int k = 0; k <= most_taps; ++k) room[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  const int k = static_cast<int>(threadIdx.y), at = k - (most_taps - taps);
  if (k > most_taps || e >= channels) return;
  float all = 0;
  for (int row = 0; row < sum_rows; ++row) all += room[row][k][threadIdx.x];
  if (k < most_taps && at >= 0) put(all, dw[e * taps + at]);
  if (k == most_taps && dbias) put(all, dbias[e]);
}

// ---- ops -------------------------------------------------------------------------------------------------------

ConvSizes conv_sizes(const Call& c, size_t x, size_t w) {
  need(c.in[x].ndim == 3 && c.in[w].ndim == 3, "x must be (B, T, E or more), w (E, 1, K)");
  return {c.in[x].dims[0], c.in[x].dims[1], c.in[x].dims[2], c.in[w].dims[0], static_cast<int>(c.in[w].dims[2])};
}
void need_sizes(const ConvSizes& s) {
  need(s.taps >= 2 && s.taps <= most_taps, "K must be 2 to 4");
  need(s.stride >= s.channels, "x has fewer columns than w has channels");
}

template <bool step>
struct Conv {
  static constexpr const char* op = step ? MAMBA_OP_CONV_STEP : MAMBA_OP_CONV;
  static constexpr size_t bias = step ? 3 : 2, segments = 3;  // a step has none
  int32_t type;
  ConvSizes s;
  static void check(const Call& c) {
    need_counts(c, step ? 3 : 2, 4, step ? 2 : 1, step ? 2 : 1), need_float(c.in[0], "x");
    need_types(c, c.in[0].dtype, {1, 2, step ? 3u : 2u}, {0, 1}, "w, bias, last or y");
    const ConvSizes s = conv_sizes(c, 0, 1);
    need_sizes(s), need_size(c.out[0], s.batch * s.tokens * s.channels, "y");
    if (c.has(bias)) need_size(c.in[bias], s.channels, "bias");
    if (step)
      need_size(c.in[2], s.batch * (s.taps - 1) * s.channels, "last");
    else
      need_segments(c, segments, s.batch * s.tokens);
  }
  explicit Conv(const Call& c) : type(c.in[0].dtype), s(conv_sizes(c, 0, 1)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) {
      // The state is in place: what is read of it is output 1.
      const ConvOf<T> p{a.in<T>(0),
                        a.in<T>(1),
                        a.in<T>(bias),
                        step ? a.out<T>(1) : nullptr,
                        a.out<T>(0),
                        s,
                        step ? nullptr : a.in<int32_t>(segments)};
      const unsigned x = blocks_of(s.channels, conv_block);
      const dim3 grid(x, second(s.runs(conv_run)), second(s.batch));
      launch<conv<T>>(grid, conv_block, 0, stream, p);
      if (step) launch<keep_last<T>>(dim3(x, second(s.batch)), conv_block, 0, stream, p, a.out<T>(1));
    });
  }
};

struct ConvGrad {
  static constexpr const char* op = MAMBA_OP_CONV_GRAD;
  static constexpr size_t segments = 5;
  int32_t type, sums;
  ConvSizes s;
  bool bias, add;
  static void check(const Call& c) {
    need_counts(c, 3, 6, 2, 3), need_float(c.in[0], "dy");
    need_types(c, c.in[0].dtype, {1, 2, 3, 4}, {0}, "x, w, bias, dx_acc or dx");
    if (c.out[1].dtype != ENG_F32) need_type(c.out[1], c.in[0].dtype, "dw");
    if (c.has_out(2)) need_type(c.out[2], c.out[1].dtype, "dbias");
    const ConvSizes s = conv_sizes(c, 1, 2);
    need_sizes(s), need_size(c.in[0], s.batch * s.tokens * s.channels, "dy");
    need_size(c.out[0], s.batch * s.tokens * s.stride, "dx"), need_size(c.out[1], s.channels * s.taps, "dw");
    if (c.has(3)) need_size(c.in[3], s.channels, "bias"), need(c.has_out(2), "with a bias it has a gradient");
    if (c.has(4)) need_size(c.in[4], elements(c.out[0]), "dx_acc");
    need_segments(c, segments, s.batch * s.tokens);
  }
  static uint64_t workspace(const Call& c) {
    const ConvSizes s = conv_sizes(c, 1, 2);
    return sizeof(float) * static_cast<uint64_t>(s.batch * s.runs(grad_run) * (most_taps + 1) * s.channels);
  }
  explicit ConvGrad(const Call& c)
      : type(c.in[0].dtype), sums(c.out[1].dtype), s(conv_sizes(c, 1, 2)), bias(c.has(3)), add(c.has(4)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      const ConvGradOf<T> g{{a.in<T>(1), a.in<T>(2), a.in<T>(3), nullptr, nullptr, s, a.in<int32_t>(segments)},
                            a.in<T>(0),
                            a.out<T>(0),
                            a.scratch<float>(),
                            add};
      const unsigned x = blocks_of(s.channels, conv_block);
      const int64_t parts = s.batch * s.runs(grad_run);
      const dim3 grid(x, second(s.runs(grad_run)), second(s.batch));
      launch<conv_grad<T>>(grid, conv_block, 0, stream, g);
      launch<conv_sums<S>>(blocks_of(s.channels, sum_columns), dim3(sum_columns, sum_rows),
                           sizeof(float[sum_rows][most_taps + 1][sum_columns]), stream, g.parts, parts, s.channels,
                           s.taps, a.out<S>(1), bias ? a.out<S>(2) : nullptr);
      if (!add) clear(g.dx, s.batch * s.tokens, s.stride, s.channels, s.stride - s.channels, stream);
    });
  }
};

}  // namespace on_cuda

void add_conv(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&cuda::kernel<Conv<false>>, &cuda::kernel<Conv<true>>, &cuda::kernel<ConvGrad>});
}

}  // namespace mamba
