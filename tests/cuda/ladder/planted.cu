// SPDX-License-Identifier: Apache-2.0
// Kernels with the properties that sass.py demands; it also compiles them so that each property is lost.
#include <cstdint>

namespace planted {

// Contracted with -fmad=true: y = a * x + y in two roundings.
__global__ void add_scaled(const float* x, float a, float* y) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  y[i] = a * x[i] + y[i];
}

// A division and a root are no contractions.
__global__ void normalise(const float* x, float* y) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  y[i] = x[i] / sqrtf(y[i]);
}

// Keeps 64 sums: spills where a thread has few registers.
__global__ void sums(const float* x, int64_t rows, float* y) {
  float sum[64] = {};
  for (int64_t r = 0; r < rows; ++r)
#pragma unroll
    for (int k = 0; k < 64; ++k) sum[k] += x[(r * 64 + k) * blockDim.x + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 64; ++k) y[k * blockDim.x + threadIdx.x] = sum[k];
}

// One product of 16 x 8 x 16.
namespace attention {
__global__ void forward_tile(const uint32_t* a, const uint32_t* b, float* c) {
  const int lane = threadIdx.x;
  float sum[4] = {};
#ifdef SCALAR
  for (int k = 0; k < 4; ++k)
    sum[k] = fmaf(__uint_as_float(a[4 * lane + k]), __uint_as_float(b[2 * lane + k / 2]), sum[k]);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[4 * lane]), "r"(a[4 * lane + 1]), "r"(a[4 * lane + 2]), "r"(a[4 * lane + 3]), "r"(b[2 * lane]),
        "r"(b[2 * lane + 1]));
#endif
  for (int k = 0; k < 4; ++k) c[4 * lane + k] = sum[k];
}
}  // namespace attention

}  // namespace planted
