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
using cuda::from_f32;
using cuda::launch;
using cuda::need;
using cuda::need_counts;
using cuda::need_float;
using cuda::need_size;
using cuda::need_type;
using cuda::rows;
using cuda::to_f32;

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ __forceinline__ float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
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
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) from_f32(0.0f, x[row * stride + first + column]);
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
