// SPDX-License-Identifier: Apache-2.0
// The sum of plugins/common/lanes.hpp, by one block with a thread for each lane.
#pragma once

#include "../lanes.hpp"
#include "device.cuh"

namespace cuda {

constexpr unsigned lanes_block = common::sum_lanes;  // threads of the launch
struct Lanes {                                       // shared memory of the launch
  double at[common::sum_lanes];
};

// The sum of all n, which thread 0 has. It sees what the block wrote before.
template <class T>
__device__ __forceinline__ double sum_in_lanes(const T* x, int64_t n) {
  double* const fold = shared<Lanes>().at;
  const int lane = static_cast<int>(threadIdx.x);
  double sum = 0;
  ENG_UNROLL_BY(8)
  for (int64_t i = lane; i < n; i += common::sum_lanes) sum += static_cast<double>(x[i]);
  fold[lane] = sum;
  for (int half = common::sum_lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) fold[lane] += fold[lane + half];
  }
  return fold[0];
}

}  // namespace cuda
