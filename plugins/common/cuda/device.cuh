// SPDX-License-Identifier: Apache-2.0
// Types and functions for kernel files. This file alone knows which compiler reads it: nvcc, for the device, or, with
// ENG_EMULATED, any compiler of C++20, for tests on the host (tests/cuda/emulator).
//
// Rules for kernels: a named namespace, so that both compilers give a kernel the same name; dynamic shared memory
// only, by shared<T>(); no contraction of a * b + c (the compiler is told so): fmaf where one rounding is meant.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef ENG_EMULATED
#include <emulator.hpp>  // tests/cuda/emulator
#else
#include <cuda_runtime.h>
#endif

#include "../call.hpp"

// Before a loop: it is unrolled, wholly or by n, or not at all. For nvcc alone.
#ifdef ENG_EMULATED
#define ENG_UNROLL
#define ENG_UNROLL_BY(n)
#define ENG_ROLL
#else
#define ENG_UNROLL _Pragma("unroll")
#define ENG_TEXT_(text) #text
#define ENG_UNROLL_BY(n) _Pragma(ENG_TEXT_(unroll n))
#define ENG_ROLL _Pragma("unroll 1")
#endif

namespace cuda {

// ---- launching -------------------------------------------------------------------------------------------------

template <auto K>
struct Launch;
template <class... P, void (*K)(P...)>
struct Launch<K> {
  static void go(dim3 grid, dim3 block, size_t bytes, cudaStream_t stream, P... p) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifdef ENG_EMULATED
    (void)stream;
    emu::Twin<K>::launch(grid, block, bytes, p...);
#else
    void* args[] = {static_cast<void*>(&p)...};
    cudaError_t error = cudaSuccess;
    if (bytes > 48 << 10)  // more must be asked for
      error = cudaFuncSetAttribute(reinterpret_cast<const void*>(K), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(bytes));
    if (error == cudaSuccess)
      error = cudaLaunchKernel(reinterpret_cast<const void*>(K), grid, block, args, bytes, stream);
    if (error != cudaSuccess)
      throw common::Error{ENG_INTERNAL, std::string("cannot be launched: ") + cudaGetErrorString(error)};
#endif
  }
};
// Nothing, if the grid is empty.
template <auto K, class... A>
void launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... a) {
  Launch<K>::go(grid, block, shared_bytes, stream, a...);
}

// Blocks of `each` units for all `n`, at most enough to fill any GPU several times: kernels go on in strides.
inline unsigned blocks_for(int64_t n, int64_t each) {
  constexpr int64_t most = 4096;
  const int64_t blocks = (n + each - 1) / each;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

// Dynamic shared memory; the launch gives at least sizeof(T).
template <class T>
__device__ __forceinline__ T& shared() {
#ifdef ENG_EMULATED
  return *static_cast<T*>(emu::shared(sizeof(T)));
#else
  extern __shared__ __align__(1024) unsigned char all_shared[];
  return *reinterpret_cast<T*>(all_shared);
#endif
}

// ---- numbers ---------------------------------------------------------------------------------------------------

template <class To, class From>
__device__ __forceinline__ To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

// The NaN that a conversion gives: the one with the bits that fit, as in eng.cast/1, or any, in fewer instructions.
enum class Nan { same, any };

template <Nan = Nan::same>
__device__ __forceinline__ float to_f32(float x) {
  return x;
}
template <Nan = Nan::same>
__device__ __forceinline__ float to_f32(bf16 x) {
  return bits_of<float>(static_cast<uint32_t>(x.bits) << 16);
}
template <Nan nan = Nan::same>
__device__ __forceinline__ float to_f32(f16 x) {
#ifdef ENG_EMULATED
  const uint32_t exponent = x.bits >> 10 & 0x1f, fraction = x.bits & 0x3ff;
  const float size = exponent == 0    ? static_cast<float>(fraction) * 0x1p-24f
                     : exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : bits_of<float>((exponent + 112) << 23 | fraction << 13);
  const float number = x.bits & 0x8000 ? -size : size;
#else
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(x.bits));
#endif
  const bool mend = nan == Nan::same && (x.bits & 0x7fff) > 0x7c00;
  return mend ? bits_of<float>((x.bits & 0x8000u) << 16 | 0x7f800000u | (x.bits & 0x3ffu) << 13) : number;
}

// To nearest even; what is too large becomes infinite.
template <Nan = Nan::same>
__device__ __forceinline__ void from_f32(float x, float& out) {
  out = x;
}
template <Nan nan = Nan::same>
__device__ __forceinline__ void from_f32(float x, bf16& out) {
  const uint32_t bits = bits_of<uint32_t>(x), high = bits >> 16;
#ifdef ENG_EMULATED
  const auto number = static_cast<uint16_t>(x != x ? 0x7fff : (bits + 0x7fff + (high & 1)) >> 16);
#else
  uint16_t number;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(number) : "f"(x));
#endif
  out.bits = nan == Nan::same && x != x ? static_cast<uint16_t>(high | (high & 0x7f ? 0 : 1)) : number;
}
template <Nan nan = Nan::same>
__device__ __forceinline__ void from_f32(float x, f16& out) {
  const uint32_t bits = bits_of<uint32_t>(x);
#ifdef ENG_EMULATED
  const uint32_t size = bits & 0x7fffffff;
  uint32_t half = size > 0x7f800000 ? 0x7fff : 0x7c00;
  if (size < 0x38800000)  // below 2^-14 the grid is 2^-24: the sum with 0.5 rounds to it
    half = bits_of<uint32_t>(bits_of<float>(size) + 0.5f) - 0x3f000000u;
  else if (size < 0x477ff000)  // 65520: half of the way to what would be 65536
    half = ((size + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10);
  const auto number = static_cast<uint16_t>((bits >> 16 & 0x8000) | half);
#else
  uint16_t number;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(number) : "f"(x));
#endif
  const uint32_t same = (bits >> 16 & 0x8000) | 0x7c00 | (bits >> 13 & 0x3ff);
  out.bits = nan == Nan::same && x != x ? static_cast<uint16_t>(same | (same & 0x3ff ? 0 : 1)) : number;
}
template <class T>
__device__ __forceinline__ T rounded(float x) {
  T out;
  from_f32(x, out);
  return out;
}

// 2^x to about 2 units of the last place, in one instruction; what is below 2^-126 is 0.
__device__ __forceinline__ float exp2_approx(float x) {
#ifdef ENG_EMULATED
  return exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
// e^x with a relative error of about 2^-22 + |x| 2^-23.
__device__ __forceinline__ float exp_approx(float x) {
  return exp2_approx(1.44269504f * x);
}
// 1 / x to 1 unit of the last place, in one instruction; what is below 2^-126 is 0, and its reciprocal infinite.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef ENG_EMULATED
  return 1.0f / x;
#else
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}
__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal(1.0f + exp_approx(-x));
}

// ---- vectors of elements ---------------------------------------------------------------------------------------

// W neighbours, read or written at once.
template <class T, int W>
struct alignas(sizeof(T) * W) Pack {
  T at[W];
};
template <class P>
__device__ __forceinline__ void check_place([[maybe_unused]] const void* at) {
#ifdef ENG_EMULATED
  emu::at_once<P>(at);
#endif
}
// As they are stored.
template <int W, class T>
__device__ __forceinline__ Pack<T, W> load_pack(const T* from) {
  check_place<Pack<T, W>>(from);
  return *reinterpret_cast<const Pack<T, W>*>(from);
}
template <class T, int W>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, W>& pack) {
  check_place<Pack<T, W>>(to);
  *reinterpret_cast<Pack<T, W>*>(to) = pack;
}
template <int W, Nan nan = Nan::same, class T>
__device__ __forceinline__ void load(const T* from, float (&out)[W]) {
  const Pack<T, W> pack = load_pack<W>(from);
  for (int k = 0; k < W; ++k) out[k] = to_f32<nan>(pack.at[k]);
}
template <int W, Nan nan = Nan::same, class T>
__device__ __forceinline__ void store(T* to, const float (&x)[W]) {
  Pack<T, W> pack;
  for (int k = 0; k < W; ++k) from_f32<nan>(x[k], pack.at[k]);
  store_pack(to, pack);
}

// out = acc + sum, or sum if there is no acc.
template <int W, class S>
__device__ __forceinline__ void put_sum(const S* acc, int64_t at, float (&sum)[W], S* out) {
  if (acc) {
    float before[W];
    load(acc + at, before);
    for (int k = 0; k < W; ++k) sum[k] = before[k] + sum[k];
  }
  store(out + at, sum);
}

// Elements of the narrowest of these types in 16 bytes: the most that one thread reads or writes at once.
template <class... T>
inline constexpr int widest = 16 / [] {
  int least = 16;
  ((least = static_cast<int>(sizeof(T)) < least ? static_cast<int>(sizeof(T)) : least), ...);
  return least;
}();
// Number of elements that F takes at once: F::width, or four.
template <class F>
inline constexpr int width_of = [] {
  if constexpr (requires { F::width; })
    return F::width;
  else
    return 4;
}();

// f.template at<W>(i) for elements i .. i + W - 1: all of n. W at a time, and the last ones alone. Before that
// f.begin(), if there is one: it reads what is the same for all.
template <class F>
__global__ void each(int64_t n, F f) {
  constexpr int64_t width = width_of<F>;
  if constexpr (requires { f.begin(); }) f.begin();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
                threads = static_cast<int64_t>(gridDim.x) * blockDim.x, whole = n / width * width;
  for (int64_t i = thread * width; i < whole; i += threads * width) f.template at<width>(i);
  if (thread < n - whole) f.template at<1>(whole + thread);
}
template <class F>
void launch_each(int64_t n, cudaStream_t stream, const F& f) {
  constexpr unsigned block = 256;
  launch<each<F>>(blocks_for(n, int64_t{block} * width_of<F>), block, 0, stream, n, f);
}

// f.template at<W>(row, column) for W neighbouring columns: all of each row. One block for each row, or for several.
// Nothing is divided by the length of a row, which would take longer than the elements. Rows of no whole vectors: W
// = 1.
template <int W, class F>
__global__ void each_row(int64_t rows, int64_t columns, F f) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (int64_t column = static_cast<int64_t>(threadIdx.x) * W; column < columns;
         column += static_cast<int64_t>(blockDim.x) * W)
      f.template at<W>(row, column);
}
template <class F>
void launch_rows(int64_t rows, int64_t columns, cudaStream_t stream, const F& f) {
  constexpr int64_t most_blocks = int64_t{1} << 30, most_threads = 256;
  const auto go = [&]<int W>() {
    const int64_t needed = (columns / W + 31) / 32 * 32, threads = needed < most_threads ? needed : most_threads;
    launch<each_row<W, F>>(static_cast<unsigned>(rows < most_blocks ? rows : most_blocks),
                           static_cast<unsigned>(threads), 0, stream, rows, columns, f);
  };
  if (columns == 0) return;
  columns % width_of<F> ? go.template operator()<1>() : go.template operator()<width_of<F>>();
}

// ---- sums of a block -------------------------------------------------------------------------------------------

constexpr unsigned warp = 32;

// Sums and maxima. The order is the same in every run: a butterfly in the warp, then over the warps. All threads get
// the result. `scratch`: one float for each warp, which nothing else uses until the next barrier of the block.
__device__ __forceinline__ float sum_of_warp(float x) {
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}
__device__ __forceinline__ float sum_of_block(float x, float* scratch) {
  x = sum_of_warp(x);
  const unsigned warps = blockDim.x / warp;
  if (threadIdx.x % warp == 0) scratch[threadIdx.x / warp] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < warps; ++w) sum += scratch[w];
  __syncthreads();
  return sum;
}
__device__ __forceinline__ float max_of_block(float x, float* scratch) {
  for (int by = 16; by > 0; by /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
  const unsigned warps = blockDim.x / warp;
  if (threadIdx.x % warp == 0) scratch[threadIdx.x / warp] = x;
  __syncthreads();
  float top = scratch[0];
  for (unsigned w = 1; w < warps; ++w) top = fmaxf(top, scratch[w]);
  __syncthreads();
  return top;
}

// ---- types and checks on the host ------------------------------------------------------------------------------

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::Error;
using common::rows;

inline void need(bool holds, const char* rule) {
  if (!holds) throw Error{ENG_INVALID, rule};
}
inline bool is_float(const eng_desc& d) {
  return d.dtype == ENG_F32 || d.dtype == ENG_BF16 || d.dtype == ENG_F16;
}
inline void need_float(const eng_desc& d, const char* what) {
  if (!is_float(d))
    throw Error{ENG_UNSUPPORTED, std::string(what) + " must be f32, bf16 or f16: " + common::describe(d)};
}
inline void need_type(const eng_desc& d, int32_t dtype, const char* what) {
  if (d.dtype != dtype) throw Error{ENG_UNSUPPORTED, std::string(what) + " has another type: " + common::describe(d)};
}
inline void need_counts(const Call& c, size_t least_in, size_t most_in, size_t least_out, size_t most_out) {
  if (c.in.size() > most_in && c.out.size() >= least_out && c.out.size() <= most_out)
    throw Error{ENG_UNSUPPORTED, "has " + std::to_string(c.in.size()) + " inputs, and this kernel knows the first " +
                                     std::to_string(most_in) + " of them"};
  if (c.in.size() < least_in || c.in.size() > most_in || c.out.size() < least_out || c.out.size() > most_out)
    throw Error{ENG_INVALID, "has " + std::to_string(c.in.size()) + " inputs and " + std::to_string(c.out.size()) +
                                 " outputs, which this op does not have"};
}
inline void need_size(const eng_desc& d, int64_t n, const char* what) {
  if (elements(d) != n)
    throw Error{ENG_INVALID,
                std::string(what) + " must have " + std::to_string(n) + " elements: " + common::describe(d)};
}
inline void need_tensor(const eng_desc& d, int32_t dtype, int64_t n, const char* what) {
  need_type(d, dtype, what), need_size(d, n, what);
}
inline void need_scalars(const eng_desc& d) {
  need_tensor(d, ENG_F32, ENG_S_COUNT, "scalars");
}
inline void need_counters(const eng_desc& d) {
  need_tensor(d, ENG_I64, ENG_C_COUNT, "counters");
}
// Input `k`, which may be absent.
inline void need_optional(const Call& c, size_t k, int32_t dtype, int64_t n, const char* what) {
  if (c.has(k)) need_tensor(c.in[k], dtype, n, what);
}
// Segments of packed samples, of so many tokens; may be absent.
inline void need_segments(const Call& c, size_t at, int64_t tokens) {
  need_optional(c, at, ENG_I32, tokens, "segments");
}
// Output `out` sums values of `dtype`: it is of that type or f32, and input `acc`, which may be absent, is like it.
inline void need_sum(const Call& c, int32_t dtype, size_t out, const char* what, size_t acc,
                     const char* what_acc = "acc") {
  if (c.out[out].dtype != ENG_F32) need_type(c.out[out], dtype, what);
  need_optional(c, acc, c.out[out].dtype, elements(c.out[out]), what_acc);
}
// f(T{}) with the type of the elements.
template <class F>
void by_type(int32_t dtype, F&& f) {
  if (dtype == ENG_BF16)
    f(bf16{});
  else if (dtype == ENG_F16)
    f(f16{});
  else
    f(float{});
}
// Sums over rows of 16-bit values are of their type or f32: f(T{}, S{}).
template <class F>
void by_types(int32_t dtype, int32_t sums, F&& f) {
  by_type(dtype, [&](auto t) {
    if (sums == ENG_F32)
      f(t, float{});
    else
      f(t, t);
  });
}

}  // namespace cuda
