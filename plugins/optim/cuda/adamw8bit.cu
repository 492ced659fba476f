// SPDX-License-Identifier: Apache-2.0
// adamw8bit's update in one pass, EXACT: every line is one IEEE operation, in the order of ../adamw8bit/adamw8bit.hpp.
// A warp updates a block of 256 elements, eight in each lane. The tables of codes lie in shared memory.
#include "../../common/cuda/glue.hpp"
#include "../adamw8bit/call.hpp"
#include "../adamw8bit/make_codes.hpp"
#include "list.hpp"

namespace adamw8bit {
namespace on_cuda {

constexpr int warps = 8, each = 8;   // warps of a block of threads; elements of a lane
constexpr int64_t most_grid = 1024;  // blocks of threads: each reads the tables once

constexpr float middle(float a, float b) {
  return static_cast<float>((static_cast<double>(a) + static_cast<double>(b)) / 2.0);
}
__device__ constexpr Codes m_table = make_codes(true, middle), v_table = make_codes(false, middle);
constexpr int32_t m_buckets = m_table.buckets, v_buckets = v_table.buckets, m_first = m_table.first,
                  v_first = v_table.first;

struct Tables {
  float m_value[256], v_value[256];
  uint32_t m_bucket[m_buckets], v_bucket[v_buckets];
};

// Everything is updated in place.
struct UpdateOf {
  float *p, *m_scales, *v_scales;
  const float *grad, *scalars;
  uint8_t *m, *v;
  int64_t blocks;
  float rest1, beta2, rest2, eps, decay;
};

// The level of x in 0 .. 1.
__device__ __forceinline__ int32_t level_of(const uint32_t* bucket, int32_t first, float x) {
  const int32_t bits = cuda::bits_of<int32_t>(x), high = bits >> bucket_shift;
  const uint32_t entry = bucket[(high > first ? high : first) - first];
  const int32_t low = bits & ((1 << bucket_shift) - 1), from = static_cast<int32_t>(entry & ((1u << from_bits) - 1));
  return static_cast<int32_t>(entry >> from_bits) + (low >= from ? 1 : 0);
}
__device__ __forceinline__ uint8_t m_code(const Tables& tables, float m, float scale) {
  const int32_t level = level_of(tables.m_bucket, m_first, fabsf(m) / scale), less = level < 127 ? level : 127;
  const bool negative = cuda::bits_of<int32_t>(m) < 0;
  return static_cast<uint8_t>(!negative ? level : less > 0 ? less | 128 : 0);
}
__device__ __forceinline__ uint8_t v_code(const Tables& tables, float v, float scale) {
  if (v == 0.0f) return 0;
  const int32_t found = level_of(tables.v_bucket, v_first, fabsf(v) / scale), level = found > 1 ? found : 1;
  return static_cast<uint8_t>(level == 255 ? 1 : level + 1);
}

// The scale of a block in which a lane's largest magnitude has these bits: as integers they are ordered like the
// numbers, and NaN is above all.
__device__ __forceinline__ float scale_of(int32_t bits) {
  for (int by = 16; by > 0; by /= 2) {
    const int32_t other = __shfl_xor_sync(0xffffffffu, bits, by);
    if (other > bits) bits = other;
  }
  return cuda::bits_of<float>(bits < 0x7f800000 ? bits : 0x7fc00000);
}

using Bytes = cuda::Pack<uint8_t, each>;

template <class W>
__global__ void __launch_bounds__(warps * 32) update(UpdateOf u, W* weight) {
  Tables& tables = cuda::shared<Tables>();
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += warps * 32)
    tables.m_value[i] = m_table.value[i], tables.v_value[i] = v_table.value[i];
  for (int i = static_cast<int>(threadIdx.x); i < m_buckets; i += warps * 32) tables.m_bucket[i] = m_table.bucket[i];
  for (int i = static_cast<int>(threadIdx.x); i < v_buckets; i += warps * 32) tables.v_bucket[i] = v_table.bucket[i];
  __syncthreads();
  const float clip = u.scalars[ENG_S_CLIP], lr = u.scalars[ENG_S_LR], c1 = u.scalars[ENG_S_LR + 1],
              c2 = u.scalars[ENG_S_LR + 2];
  const bool counts = u.scalars[ENG_S_OK] != 0.0f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32; b < u.blocks;
       b += static_cast<int64_t>(gridDim.x) * warps) {
    const int64_t at = b * block + lane * each;
    float p[each], g[each], m[each], v[each];
    cuda::load<each>(u.p + at, p);
    if (counts) {
      cuda::load<each>(u.grad + at, g);
      Bytes m_bytes = *reinterpret_cast<const Bytes*>(u.m + at), v_bytes = *reinterpret_cast<const Bytes*>(u.v + at);
      const float m_by = u.m_scales[b], v_by = u.v_scales[b];
      int32_t m_most = 0, v_most = 0;
      ENG_UNROLL
      for (int k = 0; k < each; ++k) {
        const float grad = g[k] * clip;
        m[k] = tables.m_value[m_bytes.at[k]] * m_by, v[k] = tables.v_value[v_bytes.at[k]] * v_by;
        m[k] = fmaf(u.rest1, grad - m[k], m[k]);
        v[k] = fmaf(u.beta2, v[k], u.rest2 * (grad * grad));
        if (u.decay != 0.0f) p[k] = p[k] - lr * (u.decay * p[k]);
        p[k] = p[k] - (lr * m[k] / c1) / (sqrtf(v[k]) / c2 + u.eps);
        const int32_t m_bits = cuda::bits_of<int32_t>(m[k]) & 0x7fffffff,
                      v_bits = cuda::bits_of<int32_t>(v[k]) & 0x7fffffff;
        if (m_bits > m_most) m_most = m_bits;
        if (v_bits > v_most) v_most = v_bits;
      }
      const float m_scale = scale_of(m_most), v_scale = scale_of(v_most);  // after all lanes have read the old ones
      ENG_UNROLL
      for (int k = 0; k < each; ++k) {
        m_bytes.at[k] = m_scale > 0.0f ? m_code(tables, m[k], m_scale) : uint8_t{0};
        v_bytes.at[k] = v_scale > 0.0f ? v_code(tables, v[k], v_scale) : uint8_t{0};
      }
      cuda::store<each>(u.p + at, p);
      *reinterpret_cast<Bytes*>(u.m + at) = m_bytes, *reinterpret_cast<Bytes*>(u.v + at) = v_bytes;
      __syncwarp();  // a shuffle orders no memory
      if (lane == 0) u.m_scales[b] = m_scale, u.v_scales[b] = v_scale;
    }
    if (weight) cuda::store<each>(weight + at, p);
  }
}

struct AdamW8 {
  static constexpr const char* op = ADAMW8BIT_OP_UPDATE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Settings set;
  static void check(const Call& c) { check_call(c); }
  explicit AdamW8(const Call& c) : set(c) {}
  void run(const Args& a, cudaStream_t stream) const {
    UpdateOf u{};
    u.p = a.out<float>(0), u.m = a.out<uint8_t>(1), u.m_scales = a.out<float>(2), u.v = a.out<uint8_t>(3);
    u.v_scales = a.out<float>(4), u.grad = a.in<float>(1), u.scalars = a.in<float>(6), u.blocks = set.blocks;
    u.rest1 = set.rest1, u.beta2 = set.beta2, u.rest2 = set.rest2, u.eps = set.eps, u.decay = set.wd;
    const int64_t grid = (set.blocks + warps - 1) / warps;
    const auto with = [&]<class W>(W* weight) {
      cuda::launch<update<W>>(static_cast<unsigned>(grid < most_grid ? grid : most_grid), warps * 32, sizeof(Tables),
                              stream, u, weight);
    };
    if (set.weight == ENG_F16)
      with(a.out<cuda::f16>(5));
    else
      with(set.weight ? a.out<cuda::bf16>(5) : nullptr);
  }
};

}  // namespace on_cuda
}  // namespace adamw8bit

namespace optim {

void add_adamw8bit(std::vector<const eng_kernel*>& list) {
  list.push_back(&cuda::kernel<adamw8bit::on_cuda::AdamW8>);
}

}  // namespace optim
