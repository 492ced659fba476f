// SPDX-License-Identifier: Apache-2.0
// Common parts of both routers. A warp takes a token.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "../ops.hpp"
#include "../routing.hpp"
#include "list.hpp"

namespace moe {
namespace on_cuda {

using namespace cuda;

constexpr int token_block = 256;
constexpr unsigned all_lanes = 0xffffffff;

__device__ __forceinline__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x % warp);
}
// The token of a warp.
__device__ __forceinline__ int64_t token_of_warp() {
  return int64_t{blockIdx.x} * (token_block / 32) + threadIdx.x / warp;
}

// An expert, or a group of them, and its logit, in the order of ../routing.hpp: the largest first, NaN last, of equal
// ones the lower number.
template <class Number>
struct Choice {
  Number logit;
  int32_t expert;
  __device__ __forceinline__ bool before(const Choice& other) const {
    if (logit > other.logit) return true;
    if (logit < other.logit) return false;
    const bool no = logit != logit, other_no = other.logit != other.logit;
    return no != other_no ? other_no : expert < other.expert;
  }
};
// The best of those of all lanes, to all of them.
template <class Number>
__device__ __forceinline__ Choice<Number> best_of_warp(Choice<Number> best) {
  for (int by = 16; by > 0; by /= 2) {
    const Choice<Number> other{__shfl_xor_sync(all_lanes, best.logit, by), __shfl_xor_sync(all_lanes, best.expert, by)};
    if (other.before(best)) best = other;
  }
  return best;
}

inline dim3 grid_of(const RouteSizes& r) {
  return static_cast<unsigned>((r.all + token_block / 32 - 1) / (token_block / 32));
}
// Outputs 2 to 4 of a router: order, place and offsets of the pairs of output 1.
void launch_sort(const RouteSizes& r, const Args& a, cudaStream_t stream);

}  // namespace on_cuda
}  // namespace moe
