// SPDX-License-Identifier: Apache-2.0
// A sum whose order is that of the CPU, by one block.
#pragma once

#include "../../common/cuda/device.cuh"

namespace cuda {

constexpr int order_tile = 1024;  // floats of shared memory that the launch gives

// The sum of all n, in order, in f64. Thread 0 adds them and has it, the others bring them near.
__device__ __forceinline__ double sum_in_order(const float* x, int64_t n) {
  float* const next = shared<float[order_tile]>();
  double sum = 0;
  for (int64_t from = 0; from < n; from += order_tile) {
    const int count = static_cast<int>(n - from < order_tile ? n - from : order_tile);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) next[i] = x[from + i];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < count; ++i) sum += next[i];
    __syncthreads();
  }
  return sum;
}

}  // namespace cuda
