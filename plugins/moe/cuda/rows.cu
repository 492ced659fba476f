// SPDX-License-Identifier: Apache-2.0
// Gated activations of the rows of experts and their gradient, gather and combine.
#include "../../common/cuda/glue.hpp"
#include "../ops.hpp"
#include "../routing.hpp"
#include "list.hpp"

namespace moe {
namespace on_cuda {

using namespace cuda;

constexpr int row_block = 256;

struct Slope {
  float value, slope;  // act(x), act'(x)
};
__device__ __forceinline__ Slope activate(int act, float x) {
  if (act == ENG_ACT_RELU) return x > 0 ? Slope{x, 1.0f} : Slope{0.0f, 0.0f};
  if (act == ENG_ACT_GELU) {
    const float below = 0.5f * erfcf(x * -0.707106781f), density = 0.398942280f * expf(-0.5f * x * x);
    return {x * below, fmaf(x, density, below)};
  }
  // x sigmoid(z), z = x or the argument of the tanh form of gelu, 2 sqrt(2 / pi) (x + 0.044715 x^3).
  const bool silu = act == ENG_ACT_SILU;
  const float square = 0.044715f * x * x, z = silu ? x : 1.59576912f * fmaf(square, x, x);
  const float dz = silu ? 1.0f : 1.59576912f * fmaf(square, 3.0f, 1.0f), open = 1.0f / (1.0f + expf(-z));
  return {x * open, fmaf(x * open * (1.0f - open), dz, open)};
}

// Rows of gates and what they gate, [gate | up], the weights of pairs, and their gradients, or y. dx may be in place of
// x.
template <class T>
struct GatedOf {
  const T *dy, *x;
  const float* weights;
  const int32_t* order;
  T *y, *dx;
  float* dweights;
  int64_t n, rows;
  int act;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float gate[W], up[W];
    load<W, Nan::any>(x + 2 * row * n + column, gate), load<W, Nan::any>(x + (2 * row + 1) * n + column, up);
    const float weight = weights[order[row]];
    for (int k = 0; k < W; ++k) gate[k] = activate(act, gate[k]).value * up[k] * weight;
    store<W, Nan::any>(y + row * n + column, gate);
  }
};

// A block for each row.
template <class T>
__global__ void __launch_bounds__(row_block) gated_grad(GatedOf<T> g) {
  using Warps = float[row_block / warp];
  for (int64_t row = blockIdx.x; row < g.rows; row += gridDim.x) {
    const int32_t pair = g.order[row];
    const float weight = g.weights[pair];
    float sum = 0;
    for (int64_t i = threadIdx.x; i < g.n; i += row_block) {
      const int64_t gate = 2 * row * g.n + i, up = gate + g.n;
      const Slope a = activate(g.act, to_f32(g.x[gate]));
      const float d = to_f32(g.dy[row * g.n + i]), u = to_f32(g.x[up]);
      sum = fmaf(d * a.value, u, sum);
      from_f32(d * weight * u * a.slope, g.dx[gate]), from_f32(d * weight * a.value, g.dx[up]);
    }
    sum = sum_of_block(sum, shared<Warps>());
    if (threadIdx.x == 0) g.dweights[pair] = sum;
  }
}

// combine: y[r] = the sum of the rows of the k pairs of token r, at their `places`. Else gather: y[r] = the row of the
// token of pair places[r].
template <class T, bool combine>
struct MoveOf {
  const T* x;
  const int32_t* places;
  T* y;
  int64_t n;
  int32_t k;
  static constexpr int width = widest<T>;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    if constexpr (!combine) return store_pack(y + row * n + column, load_pack<W>(x + places[row] / k * n + column));
    float sum[W] = {}, one[W];
    for (int32_t j = 0; j < k; ++j) {
      load<W, Nan::any>(x + places[row * k + j] * n + column, one);
      for (int i = 0; i < W; ++i) sum[i] += one[i];
    }
    store<W, Nan::any>(y + row * n + column, sum);
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

template <bool grad>
struct Gated {
  static constexpr const char* op = grad ? MOE_OP_GATED_GRAD : MOE_OP_GATED;
  static void check(const Call& c) {
    need_float(c.in[0], "dy or x"), need_type(c.out[0], c.in[0].dtype, "dx or y"), activation_of(c);
    need_type(c.in[grad], c.in[0].dtype, "x"), need_type(c.in[grad + 1], ENG_F32, "weights");
  }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const GatedOf<T> g{a.in<T>(0),
                         a.in<T>(grad),
                         a.in<float>(grad + 1),
                         a.in<int32_t>(grad + 2),
                         a.out<T>(0),
                         a.out<T>(0),
                         a.out<float>(1),
                         columns(c.in[grad]) / 2,
                         rows(c.in[grad]),
                         static_cast<int>(c.integer("act"))};
      if constexpr (grad)
        launch<gated_grad<T>>(static_cast<unsigned>(g.rows < 1 << 30 ? g.rows : 1 << 30), row_block,
                              row_block / warp * sizeof(float), stream, g);
      else
        launch_rows(g.rows, g.n, stream, g);
    });
  }
};

template <bool combine>
struct Move {
  static constexpr const char* op = combine ? MOE_OP_COMBINE : MOE_OP_GATHER;
  static constexpr uint32_t flags = combine ? 0 : ENG_KERNEL_EXACT;
  static void check(const Call& c) { need_float(c.in[0], "x"), need_type(c.out[0], c.in[0].dtype, "y"); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t n = columns(c.out[0]);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const auto k = static_cast<int32_t>(columns(c.in[1]));
      launch_rows(rows(c.out[0]), n, stream, MoveOf<T, combine>{a.in<T>(0), a.in<int32_t>(1), a.out<T>(0), n, k});
    });
  }
};

}  // namespace on_cuda

void add_rows(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Gated<false>>, &kernel<Gated<true>>, &kernel<Move<true>>, &kernel<Move<false>>});
}

}  // namespace moe
