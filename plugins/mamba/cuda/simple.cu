// SPDX-License-Identifier: Apache-2.0
// split, join and the initial values.
#include <cmath>

#include "../../common/cuda/random.cuh"
#include "../ssd.hpp"
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

// Rows of P + Q words, beside rows of P and of Q.
template <class W, bool join>
__global__ void copy_rows(W* x, W* a, W* b, int64_t rows, int64_t p, int64_t q) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= p + q) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    W& whole = x[row * (p + q) + column];
    W& part = column < p ? a[row * p + column] : b[row * q + (column - p)];
    if (join)
      whole = part;
    else
      part = whole;
  }
}

template <bool join>
struct Rows {
  static constexpr const char* op = join ? MAMBA_OP_JOIN : MAMBA_OP_SPLIT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t size, n, p, q;
  static void check(const Call& c) {
    need_counts(c, join ? 2 : 1, join ? 2 : 1, join ? 1 : 2, join ? 1 : 2);
    need(common::dtype_size(c.in[0].dtype) == 2 || common::dtype_size(c.in[0].dtype) == 4,
         "copies elements of 2 or 4 bytes");
    need_types(c, c.in[0].dtype, {1}, {0, 1}, "each part");
  }
  explicit Rows(const Call& c)
      : size(common::dtype_size(c.in[0].dtype)),
        n(rows(c.in[0])),
        p(columns(join ? c.in[0] : c.out[0])),
        q(columns(join ? c.in[1] : c.out[1])) {}
  void run(const Args& args, cudaStream_t stream) const {
    const auto with = [&]<class W>(W) {
      const auto tensor = [&](size_t k) { return static_cast<W*>(args.data[k]); };
      const auto words = [&](int64_t elements) { return elements * size / static_cast<int64_t>(sizeof(W)); };
      launch<copy_rows<W, join>>(grid_of(words(p + q), 128, n), 128, 0, stream, tensor(join ? 2 : 0),
                                 tensor(join ? 0 : 1), tensor(join ? 1 : 2), n, words(p), words(q));
    };
    // The largest words of which both parts of a row are made.
    const int64_t together = p * size | q * size;
    if (together % 16 == 0)
      with(Pack<uint32_t, 4>{});
    else if (together % 4 == 0)
      with(uint32_t{});
    else
      with(uint16_t{});
  }
};

// The initial values of an op: element i is of(i). ln(1) .. ln(states) are computed on the host, whose bits every
// device has.
struct ALogOf {
  static constexpr const char* op = MAMBA_OP_INIT_A_LOG;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  static constexpr int64_t most_states = 256;
  int64_t states, first;
  float logs[most_states] = {};
  explicit ALogOf(const Call& c) : states(c.integer("states")), first(c.integer("first")) {
    need(states >= 1 && first >= 0, "states must be at least 1, first 0 or more");
    if (states > most_states) throw Error{ENG_UNSUPPORTED, "fills up to 256 states of a channel"};
    for (int64_t k = 0; k < states; ++k) logs[k] = static_cast<float>(std::log(static_cast<double>(k + 1)));
  }
  __device__ float operator()(int64_t i) const { return logs[(first + i) % states]; }
};
// Random numbers u, uniform in (low, high). Not EXACT: exp, log and expm1 in f64 are those of another library.
struct UniformOf {
  static constexpr uint32_t flags = 0;
  int64_t first;
  uint64_t seed, stream;
  double low, high;
  explicit UniformOf(const Call& c) : first(c.integer("first")), low(c.real("low")), high(c.real("high")) {
    seed = static_cast<uint64_t>(c.integer("seed")), stream = static_cast<uint64_t>(c.integer("stream"));
    need(first >= 0, "first must be 0 or more");
  }
  __device__ double uniform(int64_t i) const {
    const uint64_t element = static_cast<uint64_t>(first + i);
    return low + (high - low) * ((philox(element / 4, stream, seed).at[element % 4] + 0.5) * 0x1p-32);
  }
};
struct DtBiasOf : UniformOf {
  static constexpr const char* op = MAMBA_OP_INIT_DT_BIAS;
  double least;
  explicit DtBiasOf(const Call& c) : UniformOf(c), least(c.real("floor")) {}
  __device__ float operator()(int64_t i) const {
    const double given = exp(uniform(i)), step = given > least ? given : least;
    return static_cast<float>(step + log(-expm1(-step)));  // the softplus of this is `step`
  }
};
struct LogUniformOf : UniformOf {
  static constexpr const char* op = MAMBA_OP_INIT_LOG_UNIFORM;
  explicit LogUniformOf(const Call& c) : UniformOf(c) { need(low > 0, "low must be above 0"); }
  __device__ float operator()(int64_t i) const { return static_cast<float>(log(uniform(i))); }
};
template <class T, class F>
struct FillOf {
  T* out;
  F of;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) put(of(i + k), out[i + k]);
  }
};

template <class F>
struct Init {
  static constexpr const char* op = F::op;
  static constexpr uint32_t flags = F::flags;
  int32_t type;
  int64_t n;
  F of;
  static void check(const Call& c) { need_counts(c, 0, 0, 1, 1), need_float(c.out[0], "out"), F(c); }
  explicit Init(const Call& c) : type(c.out[0].dtype), n(elements(c.out[0])), of(c) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { launch_each(n, stream, FillOf<T, F>{a.out<T>(0), of}); });
  }
};

}  // namespace on_cuda

void add_simple(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Rows<false>>, &kernel<Rows<true>>, &kernel<Init<ALogOf>>, &kernel<Init<DtBiasOf>>,
                           &kernel<Init<LogUniformOf>>});
}

}  // namespace mamba
