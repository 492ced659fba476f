// SPDX-License-Identifier: Apache-2.0
// The formats of engine/ops_fp8.h on GPUs, and the largest value of a tensor.
#pragma once

#include "../../common/cuda/glue.hpp"
#include "engine/ops_fp8.h"
#include "list.hpp"

namespace fp8 {
namespace on_cuda {

using namespace cuda;

// ---- numbers ---------------------------------------------------------------------------------------------------

// The formats by their bits.
template <bool e4m3>
struct Format {
  static constexpr int fraction = e4m3 ? 3 : 2;           // bits
  static constexpr uint32_t bias = e4m3 ? 120 : 112;      // the exponent 0 of the format in f32, less 1
  static constexpr uint32_t most = e4m3 ? 0x7e : 0x7b;    // 448, 57344
  static constexpr float grid = e4m3 ? 0x1p14f : 0x1p7f;  // a sum with it is rounded to the smallest number
};
constexpr uint32_t infinite = 0x7f800000;

// x * up, rounded to the format, as eng_fp8_round does. What is not finite does not depend on `up`.
template <bool e4m3>
__device__ __forceinline__ uint8_t as_fp8(float x, float up) {
  using F = Format<e4m3>;
  const uint32_t bits = bits_of<uint32_t>(x), sign = bits >> 24 & 0x80;
  if ((bits & 0x7fffffff) >= infinite) return static_cast<uint8_t>(sign | (e4m3 || (bits & 0x7fffff) ? 0x7f : 0x7c));
#if defined(ENG_EMULATED) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 890
  constexpr int off = 23 - F::fraction;
  const uint32_t size = bits_of<uint32_t>(x * up) & 0x7fffffff;
  uint32_t code = F::most;
  if (size < (F::bias + 1) << 23)
    code = bits_of<uint32_t>(bits_of<float>(size) + F::grid) - bits_of<uint32_t>(F::grid);
  else if (const uint32_t rounded = (size + (1u << (off - 1)) - 1 + (size >> off & 1)) >> off;
           rounded < F::most + (F::bias << F::fraction))
    code = rounded - (F::bias << F::fraction);
  return static_cast<uint8_t>(sign | code);
#else
  uint16_t pair;
  if constexpr (e4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x * up));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x * up));
  return static_cast<uint8_t>(pair);
#endif
}
__device__ __forceinline__ float from_fp8(int32_t format, uint32_t code) {
  const bool e4m3 = format == ENG_FP8_E4M3;
  const uint32_t size = code & 0x7f, sign = (code & 0x80) << 24;
  if (size > (e4m3 ? Format<true>::most : Format<false>::most))
    return bits_of<float>(sign | infinite | (e4m3 ? 0x400000 : (size & 3) << 21));
  return bits_of<float>(sign | size << (e4m3 ? 20 : 21)) * (e4m3 ? 0x1p120f : 0x1p112f);
}
// |x|, or 0 if it is not finite.
__device__ __forceinline__ float finite_size(float x) {
  const uint32_t size = bits_of<uint32_t>(x) & 0x7fffffff;
  return size < infinite ? bits_of<float>(size) : 0.0f;
}
// 2^n, n = eng_fp8_exponent.
__device__ __forceinline__ float scale_of(bool e4m3, float largest, int margin) {
  const auto bits = bits_of<uint32_t>(largest);
  int n = (e4m3 ? 8 : 15) - (static_cast<int>(bits >> 23) - 127) - ((bits & 0x7fffff) > 0x600000) - margin;
  n = bits == 0 ? 0 : n > 100 ? 100 : n < -120 ? -120 : n;
  return bits_of<float>(static_cast<uint32_t>(n + 127) << 23);
}

// ---- the largest value -----------------------------------------------------------------------------------------

constexpr int block = 256;
constexpr int64_t most_parts = 512;
struct Warps {
  float at[block / warp];
};

// parts[b]: the largest finite |x| of block b. Nothing, if `scale` is there and is not 0.
template <class T>
__global__ void largest_of_parts(const T* x, int64_t n, const float* scale, float* parts) {
  if (scale && *scale > 0) return;
  constexpr int width = widest<T>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * block + threadIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * block, whole = n / width * width;
  float most = 0;
  for (int64_t i = thread * width; i < whole; i += threads * width) {
    float v[width];
    load<width, Nan::any>(x + i, v);
    ENG_UNROLL
    for (int k = 0; k < width; ++k) most = fmaxf(most, finite_size(v[k]));
  }
  if (thread < n - whole) most = fmaxf(most, finite_size(to_f32<Nan::any>(x[whole + thread])));
  most = max_of_block(most, shared<Warps>().at);
  if (threadIdx.x == 0) parts[blockIdx.x] = most;
}
// The number of parts.
template <class T>
int largest(const T* x, int64_t n, const float* scale, float* parts, cudaStream_t stream) {
  const int64_t blocks = (n + block * widest<T> - 1) / (block * widest<T>);
  const auto count = static_cast<int>(blocks < 1 ? 1 : blocks < most_parts ? blocks : most_parts);
  launch<largest_of_parts<T>>(static_cast<unsigned>(count), block, sizeof(Warps), stream, x, n, scale, parts);
  return count;
}
// The largest of this thread's parts.
__device__ __forceinline__ float largest_of_thread(const float* parts, int count) {
  float most = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += block) most = fmaxf(most, parts[i]);
  return most;
}

// ---- checks of calls -------------------------------------------------------------------------------------------

inline void need_state(const Call& c, size_t k) {
  need(!c.has(k) || (c.in[k].dtype == ENG_F32 && rows(c.in[k]) == 3 && columns(c.in[k]) > 2),
       "a state must be f32 (3, 2 + H)");
}
inline void need_format(int64_t format) {
  need(format == ENG_FP8_E4M3 || format == ENG_FP8_E5M2, "formats must be ENG_FP8_E4M3 or ENG_FP8_E5M2");
}
inline void need_margin(const Call& c) {
  need(c.integer_or("margin", 0) >= 0 && c.integer_or("margin", 0) <= 64, "margin must be 0 to 64");
}

}  // namespace on_cuda
}  // namespace fp8
