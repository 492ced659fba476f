// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm with the sum of the residual, and their gradients. One block for each row; gradients of weights
// are summed by rows in their order, within slices of rows, and then over the slices: the same bits in every run.
#include "../../common/cuda/glue.hpp"
#include "list.hpp"

namespace cuda {
namespace norm {

constexpr unsigned block = 256;
struct Scratch {
  float warps[block / warp];
};

// X: type of x, residual and s. Y: of w and y. `mean`: LayerNorm.
template <class X, class Y>
struct Forward {
  const X *x, *residual;  // residual: may be null
  const Y *w, *bias;      // may be null
  Y* y;
  float* stats;  // rstd, or mean and rstd, of each row
  X* s;          // null without a residual
  int64_t columns;
  float eps;
  bool mean;
};

template <class X, class Y>
__global__ void forward(Forward<X, Y> f) {
  float* const scratch = shared<Scratch>().warps;
  const int64_t row = blockIdx.x, at = row * f.columns;
  const auto value = [&](int64_t i) {
    float v = to_f32(f.x[at + i]);
    if (f.residual) v = to_f32(rounded<X>(v + to_f32(f.residual[at + i])));
    return v;
  };
  float sum = 0;
  const float n = static_cast<float>(f.columns);
  float mean = 0;
  if (f.mean) {
    for (int64_t i = threadIdx.x; i < f.columns; i += block) sum += value(i);
    mean = sum_of_block(sum, scratch) / n;
    sum = 0;
  }
  for (int64_t i = threadIdx.x; i < f.columns; i += block) {
    const float v = value(i) - mean;
    sum = fmaf(v, v, sum);
  }
  const float rstd = 1.0f / sqrtf(sum_of_block(sum, scratch) / n + f.eps);
  // Each thread reads what it is about to overwrite, if s is x or the residual.
  for (int64_t i = threadIdx.x; i < f.columns; i += block) {
    const float v = value(i);
    float out = (v - mean) * rstd;
    if (f.w) out *= to_f32(f.w[i]);
    if (f.bias) out += to_f32(f.bias[i]);
    from_f32(out, f.y[at + i]);
    if (f.s) from_f32(v, f.s[at + i]);
  }
  if (threadIdx.x) return;
  if (f.mean)
    f.stats[2 * row] = mean, f.stats[2 * row + 1] = rstd;
  else
    f.stats[row] = rstd;
}

template <class X, class Y>
struct Backward {
  const Y* dy;
  const X* s;
  const Y* w;  // may be null
  const float* stats;
  const X* ds;  // may be null
  X* dx;
  int64_t columns;
  bool mean;
};

// With u = dy w and h = (s - mean) rstd: dx = rstd (u - mean(u) - h mean(u h)); RMSNorm has no mean(u).
template <class X, class Y>
__global__ void backward(Backward<X, Y> b) {
  float* const scratch = shared<Scratch>().warps;
  const int64_t row = blockIdx.x, at = row * b.columns;
  const float mean = b.mean ? b.stats[2 * row] : 0.0f, rstd = b.mean ? b.stats[2 * row + 1] : b.stats[row];
  const auto upstream = [&](int64_t i) { return to_f32(b.dy[at + i]) * (b.w ? to_f32(b.w[i]) : 1.0f); };
  float plain = 0, scaled = 0;
  for (int64_t i = threadIdx.x; i < b.columns; i += block) {
    const float u = upstream(i);
    plain += u, scaled = fmaf(u, (to_f32(b.s[at + i]) - mean) * rstd, scaled);
  }
  const float n = static_cast<float>(b.columns);
  const float a = b.mean ? sum_of_block(plain, scratch) / n : 0.0f, c = sum_of_block(scaled, scratch) / n;
  for (int64_t i = threadIdx.x; i < b.columns; i += block) {
    const float h = (to_f32(b.s[at + i]) - mean) * rstd;
    float d = rstd * (upstream(i) - a - h * c);
    if (b.ds) d += to_f32(b.ds[at + i]);
    from_f32(d, b.dx[at + i]);
  }
}

// One thread for each column of a slice of rows: dw = sum of dy h, dbias = sum of dy.
template <class X, class Y>
__global__ void weights(Backward<X, Y> b, int64_t rows, int64_t slice, float* dw, float* dbias) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= b.columns) return;
  const int64_t first = blockIdx.y * slice, last = first + slice < rows ? first + slice : rows;
  float w = 0, bias = 0;
  for (int64_t row = first; row < last; ++row) {
    const float mean = b.mean ? b.stats[2 * row] : 0.0f, rstd = b.mean ? b.stats[2 * row + 1] : b.stats[row];
    const float dy = to_f32(b.dy[row * b.columns + i]);
    w = fmaf(dy, (to_f32(b.s[row * b.columns + i]) - mean) * rstd, w), bias += dy;
  }
  dw[blockIdx.y * b.columns + i] = w;
  if (dbias) dbias[blockIdx.y * b.columns + i] = bias;
}

// out = acc + the slices, in order.
template <class S>
struct SlicesOf {
  const float* parts;
  const S* acc;
  S* out;
  int64_t columns, slices;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) {
      float sum = 0;
      for (int64_t s = 0; s < slices; ++s) sum += parts[s * columns + i + k];
      if (acc) sum += to_f32(acc[i + k]);
      from_f32(sum, out[i + k]);
    }
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

// Rows of a slice: enough slices to fill a GPU, whatever the GPU, so that the plan and the bits do not depend on it.
constexpr int64_t most_slices = 64;
int64_t slice_of(int64_t rows) {
  const int64_t least = 32, even = (rows + most_slices - 1) / most_slices;
  return even < least ? least : even;
}
int64_t slices_of(int64_t rows) {
  const int64_t slice = slice_of(rows);
  return rows ? (rows + slice - 1) / slice : 1;
}
void need_rows(const eng_desc& d) {
  need(columns(d) > 0 && rows(d) < int64_t{1} << 31, "rows must be fewer than 2^31, and not empty");
}
// f(X{}, Y{}): the stream has the type of the weights, or f32.
template <class F>
void by_stream(int32_t stream, int32_t type, F&& f) {
  by_type(type, [&](auto y) {
    if (stream == ENG_F32)
      f(float{}, y);
    else
      f(y, y);
  });
}

// RMSNorm: in x, w, [residual]; out y, rstd, [s]. LayerNorm: in x, [w], [bias], [residual]; out y, stats, [s].
template <bool layer>
struct Norm {
  static constexpr const char* op = layer ? ENG_OP_LAYER_NORM : ENG_OP_RMS_NORM;
  static constexpr size_t residual = layer ? 3 : 2;
  int32_t stream, type;
  int64_t n_rows, n_columns;
  float eps;
  static void check(const Call& c) {
    need_counts(c, 1, residual + 1, 2, 3), need_float(c.in[0], "x"), need_rows(c.in[0]), c.real("eps");
    need_float(c.out[0], "y"), need_type(c.out[1], ENG_F32, "rstd or stats");
    need_size(c.out[0], elements(c.in[0]), "y"), need_size(c.out[1], rows(c.in[0]) * (layer ? 2 : 1), "rstd or stats");
    if (c.in[0].dtype != ENG_F32) need_type(c.out[0], c.in[0].dtype, "y");
    need(layer || c.has(1), "there must be a weight");
    for (size_t k = 1; k < residual; ++k)
      if (c.has(k)) need_type(c.in[k], c.out[0].dtype, "a weight"), need_size(c.in[k], columns(c.in[0]), "a weight");
    need(c.has(residual) == c.has_out(2), "there is a sum if and only if there is a residual");
    if (c.has(residual))
      for (const eng_desc& d : {c.in[residual], c.out[2]})
        need_type(d, c.in[0].dtype, "residual or s"), need_size(d, elements(c.in[0]), "residual or s");
  }
  explicit Norm(const Call& c)
      : stream(c.in[0].dtype),
        type(c.out[0].dtype),
        n_rows(rows(c.in[0])),
        n_columns(columns(c.in[0])),
        eps(static_cast<float>(c.real("eps"))) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_stream(stream, type, [&]<class X, class Y>(X, Y) {
      const Forward<X, Y> f{a.in<X>(0),  a.in<X>(residual),
                            a.in<Y>(1),  layer ? a.in<Y>(2) : nullptr,
                            a.out<Y>(0), a.out<float>(1),
                            a.out<X>(2), n_columns,
                            eps,         layer};
      launch<forward<X, Y>>(static_cast<unsigned>(n_rows), block, sizeof(Scratch), queue, f);
    });
  }
};

// RMSNorm: in dy, s, w, rstd, [ds], [dw_acc]; out dx, dw.
// LayerNorm: in dy, s, [w], stats, [ds], [dw_acc], [dbias_acc]; out dx, [dw], [dbias].
template <bool layer>
struct NormGrad {
  static constexpr const char* op = layer ? ENG_OP_LAYER_NORM_GRAD : ENG_OP_RMS_NORM_GRAD;
  int32_t stream, type, sums;
  int64_t n_rows, n_columns;
  bool has_dw, has_dbias;
  static void check(const Call& c) {
    need_counts(c, 4, layer ? 7 : 6, 1, layer ? 3 : 2);
    need_float(c.in[0], "dy"), need_rows(c.in[1]), need_float(c.in[1], "s");
    if (c.in[1].dtype != ENG_F32) need_type(c.in[1], c.in[0].dtype, "s");
    need_size(c.in[0], elements(c.in[1]), "dy"), need_type(c.in[3], ENG_F32, "stats");
    need(layer || c.has(2), "there must be a weight");
    if (c.has(2)) need_type(c.in[2], c.in[0].dtype, "w"), need_size(c.in[2], columns(c.in[1]), "w");
    need_type(c.out[0], c.in[1].dtype, "dx"), need_size(c.out[0], elements(c.in[1]), "dx");
    if (c.has(4)) need_type(c.in[4], c.in[1].dtype, "ds"), need_size(c.in[4], elements(c.in[1]), "ds");
    for (size_t k : {1, 2})
      if (c.has_out(k)) {
        need_size(c.out[k], columns(c.in[1]), "dw or dbias"), need_type(c.out[k], c.out[1].dtype, "dbias");
        if (c.out[k].dtype != ENG_F32) need_type(c.out[k], c.in[0].dtype, "dw or dbias");
        if (c.has(4 + k)) need_type(c.in[4 + k], c.out[k].dtype, "dw_acc or dbias_acc");
      }
  }
  static uint64_t workspace(const Call& c) {
    const auto sums = static_cast<uint64_t>(slices_of(rows(c.in[1])) * columns(c.in[1])) * sizeof(float);
    return sums * ((c.has_out(1) ? 1 : 0) + (c.has_out(2) ? 1 : 0));
  }
  explicit NormGrad(const Call& c)
      : stream(c.in[1].dtype),
        type(c.in[0].dtype),
        sums(c.has_out(1) ? c.out[1].dtype : type),
        n_rows(rows(c.in[1])),
        n_columns(columns(c.in[1])),
        has_dw(c.has_out(1)),
        has_dbias(c.has_out(2)) {}
  void run(const Args& a, cudaStream_t queue) const {
    by_stream(stream, type, [&]<class X, class Y>(X, Y) {
      const Backward<X, Y> b{a.in<Y>(0), a.in<X>(1),  a.in<Y>(2), a.in<float>(3),
                             a.in<X>(4), a.out<X>(0), n_columns,  layer};
      const int64_t slices = slices_of(n_rows);
      float *dw = a.scratch<float>(), *dbias = has_dbias ? dw + slices * n_columns : nullptr;
      // First the weights: dx may take the place of ds only, but s is read by both.
      if (has_dw)
        launch<weights<X, Y>>(dim3(blocks_for(n_columns, 128), static_cast<unsigned>(slices)), 128, 0, queue, b, n_rows,
                              slice_of(n_rows), dw, dbias);
      launch<backward<X, Y>>(static_cast<unsigned>(n_rows), block, sizeof(Scratch), queue, b);
      by_types(type, sums, [&]<class T, class S>(T, S) {
        if (has_dw) launch_each(n_columns, queue, SlicesOf<S>{dw, a.in<S>(5), a.out<S>(1), n_columns, slices});
        if (has_dbias) launch_each(n_columns, queue, SlicesOf<S>{dbias, a.in<S>(6), a.out<S>(2), n_columns, slices});
      });
    });
  }
};

}  // namespace norm

void add_norm(List& list) {
  using namespace norm;
  list.insert(list.end(),
              {&kernel<Norm<false>>, &kernel<NormGrad<false>>, &kernel<Norm<true>>, &kernel<NormGrad<true>>});
}

}  // namespace cuda
