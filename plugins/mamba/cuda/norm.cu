// SPDX-License-Identifier: Apache-2.0
// The gated norm of Mamba-2 and its gradient. A block takes a group of a row. For the gradient, a thread then goes
// along some rows of a column: the sums for the weights have one order.
#include "../../common/cuda/tiles.hpp"
#include "../ssd.hpp"
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

constexpr int norm_block = 256, column_block = 128;  // the former at most

template <class T>
struct NormOf {
  const T *dy, *x, *z, *w;               // dy: of the gradient
  T *y, *dz;                             // y: or dx, which may be in place of dy
  float *found, *parts;                  // (rows, groups, 2): 1 / rms and mean(u v); (slices, E): sums for dw
  int64_t rows, columns, groups, slice;  // slice: rows of one
  float eps;
  __device__ __forceinline__ float gated(int64_t i) const {
    const float gate = value(z[i]);
    return value(x[i]) * (gate * sigmoid(gate));
  }
};

// With g = x silu(z), v = g / rms(g) and u = dy w: y = w v, or the two numbers of a group that its gradient needs.
template <class T, bool grad>
__global__ void __launch_bounds__(norm_block) gated_norm(NormOf<T> p, int64_t n) {
  using Warps = float[norm_block / warp];
  Warps& scratch = shared<Warps>();
  for (int64_t k = blockIdx.x; k < p.rows * p.groups; k += gridDim.x) {
    const int64_t first = k * n;
    const T* const w = p.w + k % p.groups * n;
    float squares = 0, dot = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float g = p.gated(first + i);
      squares = fmaf(g, g, squares);
      if (grad) dot = fmaf(value(p.dy[first + i]) * value(w[i]), g, dot);
    }
    const float scale = 1.0f / sqrtf(sum_of_block(squares, scratch) / static_cast<float>(n) + p.eps);
    if constexpr (grad) {
      dot = sum_of_block(dot, scratch);
      if (threadIdx.x == 0) p.found[2 * k] = scale, p.found[2 * k + 1] = scale * dot / static_cast<float>(n);
    } else {
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        put(value(w[i]) * (p.gated(first + i) * scale), p.y[first + i]);
    }
  }
}

// blockIdx.y: a slice of the rows.
template <class T>
__global__ void __launch_bounds__(column_block) gated_norm_grad(NormOf<T> p, int64_t n) {
  const int64_t column = int64_t{blockIdx.x} * column_block + threadIdx.x, first = blockIdx.y * p.slice;
  if (column >= p.columns) return;
  const float w = value(p.w[column]);
  float sum = 0;
  for (int64_t row = first; row < first + p.slice && row < p.rows; ++row) {
    const int64_t i = row * p.columns + column, k = row * p.groups + column / n;
    const float scale = p.found[2 * k], mean = p.found[2 * k + 1], dy = value(p.dy[i]), x = value(p.x[i]),
                gate = value(p.z[i]), open = sigmoid(gate), silu = gate * open, v = x * silu * scale,
                g = scale * (dy * w - v * mean);
    sum = fmaf(dy, v, sum);
    put(g * x * (open * fmaf(gate, 1.0f - open, 1.0f)), p.dz[i]), put(g * silu, p.y[i]);
  }
  p.parts[blockIdx.y * p.columns + column] = sum;
}

template <bool grad>
struct GatedNorm {
  static constexpr const char* op = grad ? MAMBA_OP_GATED_NORM_GRAD : MAMBA_OP_GATED_NORM;
  static constexpr size_t x = grad ? 1 : 0;
  int32_t type, sums;
  int64_t rows, columns, groups, slice, slices;
  float eps;
  static void check(const Call& c) {
    need_counts(c, grad ? 4 : 3, grad ? 4 : 3, grad ? 3 : 1, grad ? 3 : 1), need_float(c.in[x], "x");
    need_types(c, c.in[x].dtype, {0, x + 1, x + 2}, {0}, "dy, z, w, dx or y");
    if (grad) need_type(c.out[1], c.in[x].dtype, "dz"), need_sum(c, c.in[x].dtype, 2, "dw", 4);
  }
  // At least 16 rows in a slice, and at most 64 slices.
  explicit GatedNorm(const Call& c) : type(c.in[x].dtype), sums(grad ? c.out[2].dtype : type) {
    rows = cuda::rows(c.in[x]), columns = cuda::columns(c.in[x]), groups = c.integer("groups");
    slice = rows > 1024 ? (rows + 63) / 64 : 16, slices = (rows + slice - 1) / slice;
    eps = static_cast<float>(c.real("eps"));
  }
  static uint64_t workspace(const Call& c) {
    const GatedNorm k(c);
    return grad ? sizeof(float) * static_cast<uint64_t>(2 * k.rows * k.groups + k.slices * k.columns) : 0;
  }
  void run(const Args& a, cudaStream_t stream) const {
    by_types(type, sums, [&]<class T, class S>(T, S) {
      NormOf<T> p{};
      p.dy = a.in<T>(0), p.x = a.in<T>(x), p.z = a.in<T>(x + 1), p.w = a.in<T>(x + 2), p.y = a.out<T>(0);
      p.dz = grad ? a.out<T>(1) : nullptr, p.found = a.scratch<float>(),
      p.parts = grad ? p.found + 2 * rows * groups : nullptr;
      p.rows = rows, p.columns = columns, p.groups = groups, p.slice = slice, p.eps = eps;
      const auto blocks = static_cast<unsigned>(rows * groups < 1 << 30 ? rows * groups : 1 << 30);
      const int64_t n = columns / groups, threads = (n + warp - 1) / warp * warp;
      launch<gated_norm<T, grad>>(blocks, static_cast<unsigned>(threads < norm_block ? threads : norm_block),
                                  sizeof(float[norm_block / warp]), stream, p, n);
      if constexpr (grad) {
        launch<gated_norm_grad<T>>(grid_of(columns, column_block, slices), column_block, 0, stream, p, n);
        launch_each(columns, stream, SumLinesOf<S>{p.parts, a.out<S>(2), slices, columns});
      }
    });
  }
};

}  // namespace on_cuda

void add_norm(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<GatedNorm<false>>, &kernel<GatedNorm<true>>});
}

}  // namespace mamba
