// SPDX-License-Identifier: Apache-2.0
// split, join and the initial values.
#include <cmath>

#include "../../common/cuda/random.cuh"
#include "shared.cuh"

namespace mamba {
namespace on_cuda {

// Rows of P + Q words, beside rows of P and of Q.
template <class W>
struct RowsOf {
  W *x, *a, *b;
  int64_t rows, p, q;
};
template <class W, bool join>
__global__ void copy_rows(RowsOf<W> r) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= r.p + r.q) return;
  for (int64_t row = blockIdx.y; row < r.rows; row += gridDim.y) {
    W* const whole = r.x + row * (r.p + r.q) + column;
    W* const part = column < r.p ? r.a + row * r.p + column : r.b + row * r.q + (column - r.p);
    if (join)
      *whole = *part;
    else
      *part = *whole;
  }
}

template <bool join>
struct Rows {
  static constexpr const char* op = join ? MAMBA_OP_JOIN : MAMBA_OP_SPLIT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t size, n, p, q;
  static void check(const Call& c) {
    need_counts(c, join ? 2 : 1, join ? 2 : 1, join ? 1 : 2, join ? 1 : 2);
    need(cpu::dtype_size(c.in[0].dtype) == 2 || cpu::dtype_size(c.in[0].dtype) == 4, "copies elements of 2 or 4 bytes");
    need_types(c, c.in[0].dtype, {1}, {0, 1}, "each part");
  }
  explicit Rows(const Call& c)
      : size(cpu::dtype_size(c.in[0].dtype)),
        n(rows(c.in[0])),
        p(columns(join ? c.in[0] : c.out[0])),
        q(columns(join ? c.in[1] : c.out[1])) {}
  void run(const Args& args, cudaStream_t stream) const {
    const auto with = [&]<class W>(W) {
      W* const x = join ? args.out<W>(0) : const_cast<W*>(args.in<W>(0));
      W* const a = join ? const_cast<W*>(args.in<W>(0)) : args.out<W>(0);
      W* const b = join ? const_cast<W*>(args.in<W>(1)) : args.out<W>(1);
      const auto words = [&](int64_t elements) { return elements * size / static_cast<int64_t>(sizeof(W)); };
      launch<copy_rows<W, join>>(dim3(blocks_of(words(p + q), 128), second(n)), 128, 0, stream,
                                 RowsOf<W>{x, a, b, n, words(p), words(q)});
    };
    // The largest words of which both parts of a row are made.
    const int64_t together = p * size | q * size;
    if (together % 16 == 0)
      with(cuda::Pack<uint32_t, 4>{});
    else if (together % 4 == 0)
      with(uint32_t{});
    else
      with(uint16_t{});
  }
};

// ln(1) .. ln(states) are computed on the host, whose bits every device has.
constexpr int64_t most_logs = 256;
struct Logs {
  float of[most_logs] = {};
};
template <class T>
struct ALogOf {
  T* out;
  int64_t first, states;
  Logs logs;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) put(logs.of[(first + i + k) % states], out[i + k]);
  }
};
template <class T>
struct DtBiasOf {
  T* out;
  int64_t first;
  uint64_t seed, stream;
  double low, high, least;
  template <int W>
  __device__ void at(int64_t i) const {
    for (int k = 0; k < W; ++k) {
      const uint64_t element = static_cast<uint64_t>(first + i + k);
      const double uniform = (cuda::philox(element / 4, stream, seed).at[element % 4] + 0.5) * 0x1p-32;
      const double given = exp(low + (high - low) * uniform), step = given > least ? given : least;
      put(static_cast<float>(step + log(-expm1(-step))), out[i + k]);  // the softplus of this is `step`
    }
  }
};

struct InitALog {
  static constexpr const char* op = MAMBA_OP_INIT_A_LOG;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t type;
  int64_t n, first, states;
  Logs logs;
  static void check(const Call& c) {
    need_counts(c, 0, 0, 1, 1), need_float(c.out[0], "out");
    need(c.integer("states") >= 1 && c.integer("first") >= 0, "states must be at least 1, first 0 or more");
    if (c.integer("states") > most_logs) throw cuda::Error{ENG_UNSUPPORTED, "fills up to 256 states of a channel"};
  }
  explicit InitALog(const Call& c)
      : type(c.out[0].dtype), n(elements(c.out[0])), first(c.integer("first")), states(c.integer("states")) {
    for (int64_t k = 0; k < states; ++k) logs.of[k] = static_cast<float>(std::log(static_cast<double>(k + 1)));
  }
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { cuda::launch_each(n, stream, ALogOf<T>{a.out<T>(0), first, states, logs}); });
  }
};
// Not EXACT: exp, log and expm1 in f64 are those of another library.
struct InitDtBias {
  static constexpr const char* op = MAMBA_OP_INIT_DT_BIAS;
  int32_t type;
  int64_t n;
  DtBiasOf<float> values;
  static void check(const Call& c) {
    need_counts(c, 0, 0, 1, 1), need_float(c.out[0], "out");
    need(InitDtBias(c).values.first >= 0, "first must be 0 or more");
  }
  explicit InitDtBias(const Call& c)
      : type(c.out[0].dtype),
        n(elements(c.out[0])),
        values{nullptr,
               c.integer("first"),
               static_cast<uint64_t>(c.integer("seed")),
               static_cast<uint64_t>(c.integer("stream")),
               c.real("low"),
               c.real("high"),
               c.real("floor")} {}
  void run(const Args& a, cudaStream_t queue) const {
    by_type(type, [&]<class T>(T) {
      const auto& [out, first, seed, stream, low, high, least] = values;
      cuda::launch_each(n, queue, DtBiasOf<T>{a.out<T>(0), first, seed, stream, low, high, least});
    });
  }
};

}  // namespace on_cuda

void add_simple(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&cuda::kernel<Rows<false>>, &cuda::kernel<Rows<true>>, &cuda::kernel<InitALog>,
                           &cuda::kernel<InitDtBias>});
}

}  // namespace mamba
