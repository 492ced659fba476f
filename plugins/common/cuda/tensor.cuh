// SPDX-License-Identifier: Apache-2.0
// Tensor cores, and what feeds them: one PTX instruction each, and its twin in the emulator. sm_80 and up.
//
// Registers of mma are those of PTX's m16n8k16. With r = lane / 4 and c = lane % 4 * 2, a lane has
//   a: [0] (r, c) (r, c+1)   [1] (r+8, c) ..   [2] (r, c+8) ..   [3] (r+8, c+8) ..
//   b: [0] (c, r) (c+1, r)   [1] (c+8, r) (c+9, r)
//   d: [0] (r, c) [1] (r, c+1) [2] (r+8, c) [3] (r+8, c+1)
// so two neighbouring d, packed, are the a of a product that comes after.
#pragma once

#include "device.cuh"

namespace cuda {

// An address in shared memory; offsets in bytes are added to it.
#ifdef ENG_EMULATED
using SharedAddress = char*;
#else
using SharedAddress = uint32_t;
#endif
__device__ __forceinline__ SharedAddress shared_address(void* p) {
#ifdef ENG_EMULATED
  return static_cast<char*>(p);
#else
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
#endif
}

// d += a b: (16, 16) by (16, 8), of T; sums in f32.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static_assert(sizeof(T) == 2);
#ifdef ENG_EMULATED
  const uint32_t b[2] = {b0, b1};
  emu::mma_16816(d, a, b, [](uint16_t bits) { return to_f32(T{bits}); }, {__FILE__, __LINE__});
#else
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Four 8x8 matrices of 16-bit elements from shared memory: lanes 8 i .. 8 i + 7 point to the rows of matrix i, 16 bytes
// each. out[i] has elements (r, c), (r, c+1) of it, or (c, r), (c+1, r) if transposed.
template <bool transposed>
__device__ __forceinline__ void ldmatrix(uint32_t (&out)[4], SharedAddress row) {
#ifdef ENG_EMULATED
  uint32_t mine[4];  // read here, so that a sanitizer sees which thread reads
  std::memcpy(mine, row, sizeof mine);
  emu::ldmatrix(out, mine, transposed, {__FILE__, __LINE__});
#else
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
#endif
}

// Starts to copy 16 or 4 bytes to shared memory; zeros where !valid, and nothing is read.
template <int bytes>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, bool valid) {
  static_assert(bytes == 16 || bytes == 4);
#ifdef ENG_EMULATED
  emu::copy_async(to, from, valid, bytes);
#else
  const int read = valid ? bytes : 0;
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
#endif
}
// Copies started since the last commit are a group.
__device__ __forceinline__ void commit_async() {
#ifdef ENG_EMULATED
  emu::commit_copies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most `open` groups of this thread are under way. What other threads copied needs a barrier besides.
template <int open>
__device__ __forceinline__ void wait_async() {
#ifdef ENG_EMULATED
  emu::wait_async(open);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
#endif
}

// Both to nearest even; `low` is the first in memory.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
#ifdef ENG_EMULATED
  return rounded<T>(low).bits | static_cast<uint32_t>(rounded<T>(high).bits) << 16;
#else
  uint32_t out;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#endif
}

}  // namespace cuda
