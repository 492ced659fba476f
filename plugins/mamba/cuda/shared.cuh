// SPDX-License-Identifier: Apache-2.0
// Common parts of the kernels of Mamba. B sequences, T tokens, E channels, N states of a channel.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "../ops.hpp"
#include "list.hpp"

namespace mamba {
namespace on_cuda {

using namespace cuda;

// Elements as f32, and back. Which NaN of several a result is, these ops do not say.
template <class T>
__device__ __forceinline__ float value(T x) {
  return to_f32<Nan::any>(x);
}
template <class T>
__device__ __forceinline__ void put(float x, T& out) {
  from_f32<Nan::any>(x, out);
}
// ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|. The polynomial is that of the least relative error in 0 < u <= 1,
// 3.3e-8, found by Remez's algorithm.
__device__ __forceinline__ float softplus(float x) {
  constexpr float of[] = {0.00536482967f, -0.030065814f, 0.0792045668f, -0.137538046f, 0.191536561f,
                          -0.248571634f,  0.33321324f,   -0.499996483f, 1.0f};
  const float u = exp_approx(-fabsf(x));
  float sum = of[0];
  for (int k = 1; k < 9; ++k) sum = fmaf(sum, u, of[k]);
  return fmaf(sum, u, fmaxf(x, 0.0f));
}

// A block for each `each` of n; kernels go on in strides of the other dimensions.
inline dim3 grid_of(int64_t n, int64_t each, int64_t y, int64_t z = 1) {
  const auto most = [](int64_t count) { return static_cast<unsigned>(count < 65535 ? count : 65535); };
  return dim3(static_cast<unsigned>((n + each - 1) / each), most(y), most(z));
}

// Sizes and documents of sequences, for kernels that go along the tokens of a channel.
struct Sequences {
  int64_t batch, tokens, channels, stride;  // stride: elements of a token where it may have more than the channels
  const int32_t* segments;                  // (B, T), of packed samples, or null
  __device__ int64_t at(int64_t b, int64_t t, int64_t e) const { return (b * tokens + t) * channels + e; }
  __device__ int64_t wide_at(int64_t b, int64_t t, int64_t e) const { return (b * tokens + t) * stride + e; }
  // True if a document begins at token t > 0 of a packed sample: it sees no token before t.
  __device__ bool begins(int64_t b, int64_t t) const {
    return segments && t > 0 && segments[b * tokens + t] != segments[b * tokens + t - 1];
  }
  // Bit k: a document begins at token first + k, below `end`. By the first `lanes` lanes of a warp, which all get it.
  __device__ unsigned begun(int64_t b, int64_t first, int64_t end, int lanes = 32) const {
    if (!segments) return 0;
    const int64_t t = first + threadIdx.x % 32;
    return __ballot_sync(0xffffffffu >> (32 - lanes), t < end && begins(b, t));
  }
};

// Zeroes the elements of each token that belong to no channel; `x`: the first of them.
template <class T>
__global__ void clear_columns(T* x, Sequences s) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= s.stride - s.channels) return;
  for (int64_t row = blockIdx.y; row < s.batch * s.tokens; row += gridDim.y) put(0.0f, x[row * s.stride + column]);
}
template <class T>
void clear(T* x, const Sequences& s, cudaStream_t stream) {
  launch<clear_columns<T>>(grid_of(s.stride - s.channels, 128, s.batch * s.tokens), 128, 0, stream, x, s);
}

inline void need_types(const Call& c, int32_t type, std::initializer_list<size_t> in, std::initializer_list<size_t> out,
                       const char* what) {
  for (size_t k : in)
    if (c.has(k)) need_type(c.in[k], type, what);
  for (size_t k : out)
    if (c.has_out(k)) need_type(c.out[k], type, what);
}

}  // namespace on_cuda
}  // namespace mamba
