// SPDX-License-Identifier: Apache-2.0
// The curvature job's ops, all EXACT: every line is one IEEE operation, in the order of ../ops.hpp.
#include "../../common/cuda/glue.hpp"
#include "../../common/cuda/random.cuh"
#define CURVATURE_INLINE __host__ __device__ __forceinline__
#include "../call.hpp"
#include "list.hpp"

namespace curvature {
namespace on_cuda {

// The values that determine the random numbers of a call.
struct Drawn {
  uint64_t seed;
  int64_t first;  // element of the parameter with which the tensors begin
  uint32_t stream;
  double rate;
  const float* scalars;
  const int64_t* counters;
  uint32_t counter;
  uint64_t limit;  // an element is in the sample if its word is below; 2^32: all are

  Drawn(const Draw& d, const float* s, const int64_t* c)
      : seed(d.seed), first(d.first), stream(d.stream), rate(d.rate), scalars(s), counters(c), counter(0), limit(0) {}
  __device__ void begin() {
    counter = static_cast<uint32_t>(counters[ENG_C_UPDATES]);
    limit = sample_limit(rate, static_cast<double>(scalars[ENG_S_LR + 1]));
  }
  __device__ cuda::Words words(uint32_t purpose, uint32_t with, uint64_t block) const {
    return cuda::philox(block, with | uint64_t{stream + (purpose << 28)} << 32, seed);
  }
  // Word k, below 4, of a block: no register is indexed.
  __device__ static uint32_t word(const cuda::Words& w, uint32_t k) {
    const uint32_t low = k & 1 ? w.at[1] : w.at[0], high = k & 1 ? w.at[3] : w.at[2];
    return k & 2 ? high : low;
  }
  // Bits of the signs of elements i, i + 1, ... of the tensors, which are in one group of 32.
  __device__ uint32_t signs(int64_t i) const {
    const uint64_t e = static_cast<uint64_t>(first + i), j = e % 1024 / 32;
    return word(words(1, counter, e / 1024 * 8 + j % 8), static_cast<uint32_t>(j / 8)) >> e % 32;
  }
  __device__ bool sampled(int64_t i) const {
    if (limit >> 32) return true;
    const uint64_t e = static_cast<uint64_t>(first + i);
    return word(words(2, 0, e / 32 * 8 + e % 8), static_cast<uint32_t>(e % 32 / 8)) < static_cast<uint32_t>(limit);
  }
};

__device__ __forceinline__ float with_sign(float x, uint32_t bit) {
  return cuda::bits_of<float>(cuda::bits_of<uint32_t>(x) ^ bit << 31);
}

struct PerturbOf {
  Drawn drawn;
  const float* base;
  float* p;
  float a;
  __device__ void begin() { drawn.begin(), a = drawn.scalars[ENG_S_LR]; }
  template <int W>
  __device__ void at(int64_t i) const {
    float x[W];
    cuda::load<W>(base + i, x);
    const uint32_t signs = drawn.signs(i);
    for (int k = 0; k < W; ++k)
      if (drawn.sampled(i + k)) x[k] = x[k] + with_sign(a, signs >> k & 1);
    cuda::store<W>(p + i, x);
  }
};

struct Moments {
  float *mean, *m2;
  const float* scalars;
  float factor, weight;
  __device__ void begin() { factor = scalars[ENG_S_LR], weight = scalars[ENG_S_LR + 2]; }
};
__device__ __forceinline__ void add_value(float x, float weight, float& mean, float& m2) {
  const float off = x - mean;
  mean = mean + off * weight;
  m2 = m2 + off * (x - mean);
}

struct HutchinsonOf {
  Drawn drawn;
  const float *plus, *grad;
  Moments m;
  __device__ void begin() { drawn.begin(), m.begin(); }
  template <int W>
  __device__ void at(int64_t i) const {
    float above[W], below[W], mean[W], m2[W];
    cuda::load<W>(plus + i, above), cuda::load<W>(grad + i, below);
    cuda::load<W>(m.mean + i, mean), cuda::load<W>(m.m2 + i, m2);
    const uint32_t signs = drawn.signs(i);
    for (int k = 0; k < W; ++k)
      if (drawn.sampled(i + k))
        add_value(with_sign((above[k] - below[k]) * m.factor, signs >> k & 1), m.weight, mean[k], m2[k]);
    cuda::store<W>(m.mean + i, mean), cuda::store<W>(m.m2 + i, m2);
  }
};

struct FisherOf {
  const float* grad;
  Moments m;
  __device__ void begin() { m.begin(); }
  template <int W>
  __device__ void at(int64_t i) const {
    float g[W], mean[W], m2[W];
    cuda::load<W>(grad + i, g), cuda::load<W>(m.mean + i, mean), cuda::load<W>(m.m2 + i, m2);
    for (int k = 0; k < W; ++k) add_value((g[k] * g[k]) * m.factor, m.weight, mean[k], m2[k]);
    cuda::store<W>(m.mean + i, mean), cuda::store<W>(m.m2 + i, m2);
  }
};

// By blocks of Philox: block q has the normals of elements i, i + 8, i + 16 and i + 24, i = q / 8 * 32 + q % 8.
struct NoiseOf {
  Drawn drawn;
  const float *base, *scale;
  const uint8_t* classes;
  float* p;
  int64_t n;
  float sigma;
  uint8_t wanted;
  static constexpr int width = 1;
  __device__ void begin() {
    drawn.begin();
    sigma = drawn.scalars[ENG_S_LR], wanted = static_cast<uint8_t>(drawn.scalars[ENG_S_LR + 1]);
  }
  template <int W>
  __device__ void at(int64_t q) const {
    const int64_t i = q / 8 * 32 + q % 8;
    if (i >= n) return;
    const float factor = sigma * scale[i / noise_block];
    float x[4];
    bool moves[4], any = false;
    for (int k = 0; k < 4; ++k) {
      const int64_t at = i + 8 * k;
      const bool in = at < n;
      x[k] = in ? base[at] : 0.0f;
      moves[k] = in && classes[at] == wanted && factor != 0.0f;
      any = any || moves[k];
    }
    if (any) {
      const cuda::Words w = drawn.words(3, drawn.counter, static_cast<uint64_t>(drawn.first / 4 + q));
      const Normals first = normals_of(w.at[0], w.at[1]), last = normals_of(w.at[2], w.at[3]);
      const double z[] = {first.first, first.second, last.first, last.second};
      for (int k = 0; k < 4; ++k)
        if (moves[k]) x[k] = x[k] + factor * static_cast<float>(z[k]);
    }
    for (int k = 0; k < 4; ++k)
      if (i + 8 * k < n) p[i + 8 * k] = x[k];
  }
};

template <class T>
struct CopyOf {
  const T* x;
  T* y;
  static constexpr int width = cuda::widest<T>;
  template <int W>
  __device__ void at(int64_t i) const {
    cuda::store_pack(y + i, cuda::load_pack<W>(x + i));
  }
};

// A block counts 32 units, one for each lane; its warps share the rows.
constexpr int count_warps = 8, count_units = 32;
struct Counts {
  uint32_t zeros[count_warps][count_units], small[count_warps][count_units];
};
template <class T>
__global__ void __launch_bounds__(count_warps* count_units)
    count(const T* x, int64_t* into, int64_t rows, int64_t units, float threshold) {
  Counts& all = cuda::shared<Counts>();
  const int lane = static_cast<int>(threadIdx.x) % count_units, warp = static_cast<int>(threadIdx.x) / count_units;
  const int64_t u = static_cast<int64_t>(blockIdx.x) * count_units + lane;
  uint32_t zeros = 0, small = 0;
  if (u < units) {
    ENG_UNROLL_BY(4)
    for (int64_t r = warp; r < rows; r += count_warps) {
      const float v = cuda::to_f32(x[r * units + u]);
      zeros += v == 0.0f ? 1u : 0u, small += fabsf(v) <= threshold ? 1u : 0u;
    }
  }
  all.zeros[warp][lane] = zeros, all.small[warp][lane] = small;
  __syncthreads();
  if (warp > 0 || u >= units) return;
  int64_t sum_zeros = 0, sum_small = 0;
  for (int w = 0; w < count_warps; ++w) sum_zeros += all.zeros[w][lane], sum_small += all.small[w][lane];
  into[u] += sum_zeros, into[units + u] += sum_small;
}

// ---- ops -------------------------------------------------------------------------------------------------------

struct Perturb : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_PERTURB;
  Draw draw;
  static void check(const Call& c) { check_perturb(c, false); }
  explicit Perturb(const Call& c) : draw(c) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    cuda::launch_each(elements(c.in[0]), stream,
                      PerturbOf{{draw, a.in<float>(1), a.in<int64_t>(2)}, a.in<float>(0), a.out<float>(0), 0});
  }
};

struct AddNoise : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_NOISE;
  Draw draw;
  static void check(const Call& c) { check_noise(c, false); }
  explicit AddNoise(const Call& c) : draw(c) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    const int64_t n = elements(c.in[0]);
    cuda::launch_each((n + 31) / 32 * 8, stream,
                      NoiseOf{{draw, a.in<float>(3), a.in<int64_t>(4)},
                              a.in<float>(0),
                              a.in<float>(2),
                              a.in<uint8_t>(1),
                              a.out<float>(0),
                              n,
                              0,
                              0});
  }
};

struct Hutchinson : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_HUTCHINSON;
  Draw draw;
  static void check(const Call& c) { check_hutchinson(c, false); }
  explicit Hutchinson(const Call& c) : draw(c) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    const float* const scalars = a.in<float>(4);
    cuda::launch_each(elements(c.in[0]), stream,
                      HutchinsonOf{{draw, scalars, a.in<int64_t>(5)},
                                   a.in<float>(0),
                                   a.in<float>(1),
                                   {a.out<float>(0), a.out<float>(1), scalars, 0, 0}});
  }
};

struct Fisher : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_FISHER;
  static void check(const Call& c) { check_fisher(c, false); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    cuda::launch_each(elements(c.in[0]), stream,
                      FisherOf{a.in<float>(0), {a.out<float>(0), a.out<float>(1), a.in<float>(3), 0, 0}});
  }
};

struct CopyBits : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_COPY;
  static void check(const Call& c) { check_copy(c); }
  static void run(const Call& c, const Args& a, cudaStream_t stream) {
    const int64_t bytes = elements(c.in[0]) * static_cast<int64_t>(common::dtype_size(c.in[0].dtype));
    const auto with = [&]<class T>(T) {
      cuda::launch_each(bytes / static_cast<int64_t>(sizeof(T)), stream, CopyOf<T>{a.in<T>(0), a.out<T>(0)});
    };
    bytes % 4 ? with(uint8_t{}) : with(uint32_t{});
  }
};

struct Count : cuda::Exact {
  static constexpr const char* op = CURVATURE_OP_COUNT;
  float threshold;
  static void check(const Call& c) { check_count(c, false); }
  explicit Count(const Call& c) : threshold(static_cast<float>(c.real("threshold"))) {}
  void run(const Call& c, const Args& a, cudaStream_t stream) const {
    const int64_t units = common::columns(c.in[0]);
    cuda::by_type(c.in[0].dtype, [&]<class T>(T) {
      cuda::launch<count<T>>(static_cast<unsigned>((units + count_units - 1) / count_units), count_warps * count_units,
                             sizeof(Counts), stream, a.in<T>(0), a.out<int64_t>(0), common::rows(c.in[0]), units,
                             threshold);
    });
  }
};

}  // namespace on_cuda

std::vector<const eng_kernel*> cuda_kernels() {
  using namespace on_cuda;
  return {&cuda::kernel<Perturb>, &cuda::kernel<AddNoise>, &cuda::kernel<Hutchinson>,
          &cuda::kernel<Fisher>,  &cuda::kernel<CopyBits>, &cuda::kernel<Count>};
}

}  // namespace curvature
