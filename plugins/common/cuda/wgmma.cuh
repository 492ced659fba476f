// SPDX-License-Identifier: Apache-2.0
// Products of a warp group, 4 warps, on the tensor cores of sm_90a: wgmma, and its twin in the emulator. All are
// 64 x 64 x 16: a tile of 64 columns of 16 bits is one 128-byte pattern in either direction. PTX ISA, "Asynchronous
// Warpgroup Level Matrix Multiply-Accumulate Instructions":
//  - Registers ("Register Fragments and Shared Memory Matrix Layouts"): warp w of the group has rows 16 w .. of a and
//    d, in the registers of mma.m16n8k16 (tensor.cuh); d[j] are columns 8 j .. 8 j + 7.
//  - Shared memory ("Shared Memory Matrix Layout"): rows of 128 bytes. A pattern is 8 rows, begins at a multiple of
//    1024 bytes, and its 16-byte chunk c of row r lies in place c ^ r: bits 4-6 of an address are those of the
//    position, xor its bits 7-9. Tile<T, 64, N> is laid out so.
//  - Descriptor ("Matrix Descriptor Format"): bits 0-13 start address / 16, 16-29 leading byte offset / 16, 32-45
//    stride byte offset / 16, 49-51 base offset, 0 where patterns begin at multiples of 1024; 62-63: 1 is the 128-byte
//    swizzle. The stride leads from 8 rows to the next 8: in K-major of M or N, in MN-major of K. The leading offset
//    has no meaning in K-major with a swizzle; in MN-major it leads to the next 64 elements of M or N, which are not.
//  - Proxies ("Proxies", "wgmma.mma_async"): wgmma reads shared memory through the async proxy; what threads wrote,
//    cp.async included, each of them makes visible to it by fence.proxy.async, before the barrier.
#pragma once

#include "tensor.cuh"

namespace cuda {
namespace wgmma {

// False for targets without these instructions, where nobody launches their kernels.
#if defined(ENG_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool here = true;
#else
constexpr bool here = false;
#endif
__device__ __forceinline__ void refuse() {
#ifndef ENG_EMULATED
  __trap();
#endif
}
using Sums = float[1][8][4];  // of (64, 64): as the sums of mma of a warp with 16 rows

// The descriptor of what begins `bytes`, whole patterns or chunks of its first row, behind the address of a tile or of
// a whole number of patterns in it. Addresses of shared memory have at most 18 bits.
__device__ __forceinline__ uint64_t describe(SharedAddress at, int bytes) {
  constexpr uint32_t stride = 1024 / 16, swizzle = 1u << 30;
#ifdef ENG_EMULATED
  const auto first = static_cast<uint32_t>(emu::shared_offset(at) / 16);
#else
  const uint32_t first = at / 16;
#endif
  return uint64_t{swizzle | stride} << 32 | (first + (static_cast<uint32_t>(bytes) / 16 + (stride << 16)));
}

#define ENG_FOUR(j) "+f"(d[0][j][0]), "+f"(d[0][j][1]), "+f"(d[0][j][2]), "+f"(d[0][j][3])
#define ENG_SUMS ENG_FOUR(0), ENG_FOUR(1), ENG_FOUR(2), ENG_FOUR(3), ENG_FOUR(4), ENG_FOUR(5), ENG_FOUR(6), ENG_FOUR(7)
#define ENG_WGMMA(type, before, rest)                                                                               \
  before "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                \
         " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27," \
         "%28,%29,%30,%31}, " rest

// d = a b^T, or d += a b^T if `add`: a (64, 16) and b (64, 16) in shared memory, both K-major.
template <class T>
__device__ __forceinline__ void multiply_rows(Sums& d, uint64_t a, uint64_t b, bool add) {
#ifdef ENG_EMULATED
  emu::wgmma(d[0][0], nullptr, a, b, false, add, [](uint16_t bits) { return to_f32(T{bits}); }, {__FILE__, __LINE__});
#else
#define ENG_BOTH_SHARED(type)                                                                               \
  asm volatile(ENG_WGMMA(type, "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n", "%32, %33, p, 1, 1, 0, 0;\n}") \
               : ENG_SUMS                                                                                   \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
  if constexpr (std::is_same_v<T, bf16>)
    ENG_BOTH_SHARED("bf16");
  else
    ENG_BOTH_SHARED("f16");
#endif
}
// d += a b: a (64, 16) in registers, b (16, 64) in shared memory, MN-major: its rows are those of the tile.
template <class T>
__device__ __forceinline__ void add_product(Sums& d, const uint32_t (&a)[4], uint64_t b) {
#ifdef ENG_EMULATED
  emu::wgmma(d[0][0], a, 0, b, true, true, [](uint16_t bits) { return to_f32(T{bits}); }, {__FILE__, __LINE__});
#else
#define ENG_LEFT_REGISTERS(type)                                          \
  asm volatile(ENG_WGMMA(type, "", "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;") \
               : ENG_SUMS                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
  if constexpr (std::is_same_v<T, bf16>)
    ENG_LEFT_REGISTERS("bf16");
  else
    ENG_LEFT_REGISTERS("f16");
#endif
}

// Before products that use registers which this thread wrote or read since the last ones.
__device__ __forceinline__ void begin() {
#ifdef ENG_EMULATED
  emu::fence_products();
#else
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Products started since the last commit are a group.
__device__ __forceinline__ void commit() {
#ifdef ENG_EMULATED
  emu::commit_products();
#else
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until at most `open` groups are under way. `sums` are those of products that are done: nothing reads them before.
template <int open, class... S>
__device__ __forceinline__ void wait([[maybe_unused]] S&... sums) {
#ifdef ENG_EMULATED
  emu::wgmma_wait(open, {__FILE__, __LINE__});
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
  const auto keep = [](Sums& d) { asm volatile("" : ENG_SUMS::"memory"); };
  (keep(sums), ...);
#endif
}
// From now on wgmma can read what this thread wrote to shared memory, and its copies that have landed.
__device__ __forceinline__ void show() {
#ifdef ENG_EMULATED
  emu::fence_proxy();
#else
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace wgmma
}  // namespace cuda
