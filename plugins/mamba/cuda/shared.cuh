// SPDX-License-Identifier: Apache-2.0
// What the kernels of Mamba share. B sequences, T tokens, E channels, N states of a channel.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "../ops.hpp"
#include "list.hpp"

namespace mamba {
namespace on_cuda {

using cuda::Args;
using cuda::by_type;
using cuda::by_types;
using cuda::Call;
using cuda::columns;
using cuda::elements;
using cuda::launch;
using cuda::need;
using cuda::need_counts;
using cuda::need_float;
using cuda::need_size;
using cuda::need_type;
using cuda::rows;
using cuda::sigmoid;

// Elements as f32, and back. Which NaN of several a result is, these ops do not say.
template <class T>
__device__ __forceinline__ float value(T x) {
  return cuda::to_f32<cuda::Nan::any>(x);
}
template <class T>
__device__ __forceinline__ void put(float x, T& out) {
  cuda::from_f32<cuda::Nan::any>(x, out);
}
// ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|. The polynomial is that of the least relative error in 0 < u <= 1,
// 3.3e-8, found by Remez's algorithm.
__device__ __forceinline__ float softplus(float x) {
  constexpr float of[] = {0.00536482967f, -0.030065814f, 0.0792045668f, -0.137538046f, 0.191536561f,
                          -0.248571634f,  0.33321324f,   -0.499996483f, 1.0f};
  const float u = cuda::exp_approx(-fabsf(x));
  float sum = of[0];
  for (int k = 1; k < 9; ++k) sum = fmaf(sum, u, of[k]);
  return fmaf(sum, u, fmaxf(x, 0.0f));
}

inline unsigned blocks_of(int64_t n, int64_t each) {
  return static_cast<unsigned>((n + each - 1) / each);
}
// The second dimension of a grid; kernels go on in strides.
inline unsigned second(int64_t n) {
  return static_cast<unsigned>(n < 65535 ? n : 65535);
}

// Zeroes columns first .. first + count - 1 of each row.
template <class T>
__global__ void clear_columns(T* x, int64_t rows, int64_t stride, int64_t first, int64_t count) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= count) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) put(0.0f, x[row * stride + first + column]);
}
template <class T>
void clear(T* x, int64_t rows, int64_t stride, int64_t first, int64_t count, cudaStream_t stream) {
  launch<clear_columns<T>>(dim3(blocks_of(count, 128), second(rows)), 128, 0, stream, x, rows, stride, first, count);
}

// Segments (B, T), of packed samples; may be absent.
inline void need_segments(const Call& c, size_t at, int64_t tokens) {
  if (c.has(at)) need_type(c.in[at], ENG_I32, "segments"), need_size(c.in[at], tokens, "segments");
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
