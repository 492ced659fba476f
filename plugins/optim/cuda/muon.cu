// SPDX-License-Identifier: Apache-2.0
// Muon's ops, all EXACT: every line is one IEEE operation, in the order of ../muon/muon.hpp.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/lanes.cuh"
#include "../../common/weight.hpp"
#include "../muon/neurons.hpp"
#include "list.hpp"

namespace muon {
namespace on_cuda {

using cuda::Args;
using cuda::Call;
using cuda::elements;
using cuda::from_f32;
using cuda::launch;
using cuda::need_counts;
using cuda::need_scalars;

void need_like(const eng_desc& d, const eng_desc& first, const char* what) {
  cuda::need_tensor(d, ENG_F32, elements(first), what);
}

struct MomentumOf {
  float *grad, *m;
  const float* scalars;
  float mu;
  bool nesterov;
  float clip;
  bool ok;
  __device__ void begin() { clip = scalars[ENG_S_CLIP], ok = scalars[ENG_S_OK] != 0.0f; }
  template <int W>
  __device__ void at(int64_t i) const {
    if (!ok) return;  // both are in place
    float g[W], sum[W];
    cuda::load<W>(grad + i, g), cuda::load<W>(m + i, sum);
    for (int k = 0; k < W; ++k) {
      const float clipped = g[k] * clip;
      sum[k] = mu * sum[k] + clipped;
      g[k] = nesterov ? clipped + mu * sum[k] : sum[k];
    }
    cuda::store<W>(grad + i, g), cuda::store<W>(m + i, sum);
  }
};

struct Momentum {
  static constexpr const char* op = MUON_OP_MOMENTUM;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  float momentum;
  bool nesterov;
  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2), need_scalars(c.in[2]);
    for (const eng_desc* d : {&c.in[0], &c.in[1], &c.out[0], &c.out[1]}) need_like(*d, c.in[0], "grad or m");
    (void)Momentum(c);
  }
  explicit Momentum(const Call& c)
      : n(elements(c.in[0])), momentum(static_cast<float>(c.real("momentum"))), nesterov(c.integer("nesterov") != 0) {}
  void run(const Args& a, cudaStream_t stream) const {
    cuda::launch_each(n, stream,
                      MomentumOf{a.out<float>(0), a.out<float>(1), a.in<float>(2), momentum, nesterov, 0, false});
  }
};

// The sum of squares of at most 4,096 of n elements, by a block with a thread for each of the 64 lanes. Lane 0 has it.
constexpr int64_t chunk = 4096;
constexpr int lanes = 64;
__device__ __forceinline__ double squares_of_chunk(const float* u, int64_t n) {
  float* const fold = cuda::shared<float[lanes]>();
  const int lane = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int64_t i = lane; i < (n < chunk ? n : chunk); i += lanes) sum = sum + u[i] * u[i];
  fold[lane] = sum;
  __syncthreads();
  for (int half = lanes / 2; half > 0; half /= 2) {
    if (lane < half) fold[lane] = fold[lane] + fold[lane + half];
    __syncthreads();
  }
  return lane == 0 ? static_cast<double>(fold[0]) : 0.0;  // fold[0] is its own until the next barrier
}
__global__ void __launch_bounds__(lanes) sum_squares(const float* u, int64_t n, double* partial) {
  for (int64_t c = blockIdx.x; c * chunk < n; c += gridDim.x) {
    const double sum = squares_of_chunk(u + c * chunk, n - c * chunk);
    if (threadIdx.x == 0) partial[c] = sum;
  }
}
// The factor of all elements, behind the sums.
__global__ void __launch_bounds__(cuda::lanes_block) factor_of(double* partial, int64_t chunks, double eps) {
  const double sum = cuda::sum_in_lanes(partial, chunks);
  if (threadIdx.x == 0) partial[chunks] = 1.0 / (sqrt(sum) + eps);
}
struct ScaleOf {
  const float* u;
  float* x;
  const double* factor;
  float by;
  __device__ void begin() { by = static_cast<float>(*factor); }
  template <int W>
  __device__ void at(int64_t i) const {
    float v[W];
    cuda::load<W>(u + i, v);
    for (int k = 0; k < W; ++k) v[k] = by * v[k];
    cuda::store<W>(x + i, v);
  }
};

struct Normalize {
  static constexpr const char* op = MUON_OP_NORMALIZE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n, chunks;
  double eps;
  static int64_t chunks_of(const Call& c) { return (elements(c.in[0]) + chunk - 1) / chunk; }
  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1), need_like(c.in[0], c.in[0], "u"), need_like(c.out[0], c.in[0], "x");
    c.real("eps");
  }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(chunks_of(c) + 1); }
  explicit Normalize(const Call& c) : n(elements(c.in[0])), chunks(chunks_of(c)), eps(c.real("eps")) {}
  void run(const Args& a, cudaStream_t stream) const {
    double* const partial = a.scratch<double>();
    launch<sum_squares>(cuda::blocks_for(chunks, 1), lanes, sizeof(float[lanes]), stream, a.in<float>(0), n, partial);
    launch<factor_of>(1, cuda::lanes_block, sizeof(cuda::Lanes), stream, partial, chunks, eps);
    cuda::launch_each(n, stream, ScaleOf{a.in<float>(0), a.out<float>(0), partial + chunks, 0});
  }
};

// NorMuon's rows, a block for each one: v is updated, and the factor of the row and its sum of squares with it are
// kept.
struct Rows {
  float *o, *v;
  const float* scalars;
  double *by, *squares;
  int64_t rows, columns;
  float kept, added, eps;
};
__global__ void __launch_bounds__(lanes) measure_rows(Rows r) {
  if (r.scalars[ENG_S_OK] == 0.0f) return;
  for (int64_t i = blockIdx.x; i < r.rows; i += gridDim.x) {
    double sum = 0;
    for (int64_t k = 0; k < r.columns; k += chunk) sum += squares_of_chunk(r.o + i * r.columns + k, r.columns - k);
    if (threadIdx.x > 0) continue;
    const auto mean = static_cast<float>(sum / static_cast<double>(r.columns));
    r.v[i] = r.kept * r.v[i] + r.added * mean;
    r.by[i] = static_cast<double>(1.0f / (sqrtf(r.v[i]) + r.eps));
    r.squares[i] = (r.by[i] * r.by[i]) * sum;
  }
}
// The factor of all rows, behind the sums.
__global__ void __launch_bounds__(cuda::lanes_block) norm_of_rows(double* squares, int64_t rows, double norm) {
  const double all = cuda::sum_in_lanes(squares, rows);
  if (threadIdx.x == 0) squares[rows] = all > 0 ? norm / sqrt(all) : 0.0;
}
struct ScaleRowsOf {
  Rows r;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    if (r.scalars[ENG_S_OK] == 0.0f) return;
    const auto factor = static_cast<float>(r.by[row] * r.squares[r.rows]);
    float v[W];
    cuda::load<W>(r.o + row * r.columns + column, v);
    for (int k = 0; k < W; ++k) v[k] = factor * v[k];
    cuda::store<W>(r.o + row * r.columns + column, v);
  }
};

struct Neurons {
  static constexpr const char* op = MUON_OP_NEURONS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static void check(const Call& c) {
    need_counts(c, 3, 3, 2, 2), need_scalars(c.in[2]), need_like(c.in[0], c.in[0], "o");
    need_like(c.out[0], c.in[0], "o"), need_like(c.out[1], c.in[1], "v");
    cuda::need(c.in[0].ndim == 2, "o must be a matrix"), cuda::need_tensor(c.in[1], ENG_F32, c.in[0].dims[0], "v");
    c.real("beta2"), c.real("eps"), c.real("norm");
  }
  static uint64_t workspace(const Call& c) { return sizeof(double) * static_cast<uint64_t>(2 * c.in[0].dims[0] + 1); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t rows = c.in[0].dims[0], columns = c.in[0].dims[1];
    double* const by = a.scratch<double>();
    const double beta2 = c.real("beta2");
    const Rows r{a.out<float>(0),
                 a.out<float>(1),
                 a.in<float>(2),
                 by,
                 by + rows,
                 rows,
                 columns,
                 static_cast<float>(beta2),
                 static_cast<float>(1 - beta2),
                 static_cast<float>(c.real("eps"))};
    launch<measure_rows>(cuda::blocks_for(rows, 1), lanes, sizeof(float[lanes]), stream, r);
    launch<norm_of_rows>(1, cuda::lanes_block, sizeof(cuda::Lanes), stream, r.squares, rows, c.real("norm"));
    cuda::launch_rows(rows, columns, stream, ScaleRowsOf{r});
  }
};

template <class W16>
struct ApplyOf {
  float* p;
  const float *o, *scalars;
  W16* weight;
  float decay;
  float lr;
  bool ok;
  __device__ void begin() { lr = scalars[ENG_S_LR], ok = scalars[ENG_S_OK] != 0.0f; }
  template <int W>
  __device__ void at(int64_t i) const {
    float x[W], d[W];
    cuda::load<W>(p + i, x);
    if (ok) {  // else p, which is in place, stays
      cuda::load<W>(o + i, d);
      for (int k = 0; k < W; ++k) {
        const float kept = decay != 0.0f ? x[k] - lr * (decay * x[k]) : x[k];
        x[k] = kept - lr * d[k];
      }
      cuda::store<W>(p + i, x);
    }
    if (weight) cuda::store<W>(weight + i, x);
  }
};

struct Apply {
  static constexpr const char* op = MUON_OP_APPLY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  int32_t weight;  // its type; 0: none
  float decay;
  static void check(const Call& c) {
    need_counts(c, 3, 3, 1, 2), need_scalars(c.in[2]), common::check_weight(c, 1);
    for (const eng_desc* d : {&c.in[0], &c.in[1], &c.out[0]}) need_like(*d, c.in[0], "p or o");
    c.real("weight_decay");
  }
  explicit Apply(const Call& c)
      : n(elements(c.in[0])),
        weight(common::has_weight(c, 1) ? c.out[1].dtype : 0),
        decay(static_cast<float>(c.real("weight_decay"))) {}
  void run(const Args& a, cudaStream_t stream) const {
    const auto with = [&]<class W>(W* weights) {
      cuda::launch_each(n, stream,
                        ApplyOf<W>{a.out<float>(0), a.in<float>(1), a.in<float>(2), weights, decay, 0, false});
    };
    if (weight == ENG_F16)
      with(a.out<cuda::f16>(1));
    else
      with(weight ? a.out<cuda::bf16>(1) : nullptr);
  }
};

}  // namespace on_cuda
}  // namespace muon

namespace optim {

void add_muon(std::vector<const eng_kernel*>& list) {
  using namespace muon::on_cuda;
  list.insert(list.end(),
              {&cuda::kernel<Momentum>, &cuda::kernel<Normalize>, &cuda::kernel<Apply>, &cuda::kernel<Neurons>});
}

}  // namespace optim
