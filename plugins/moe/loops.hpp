// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast kernels, compiled once per instruction set: rows (loops.cpp) and products (products.cpp).
//
// T is the type of the activations and their gradients in memory: float, bf16 or f16. Everything else is f32, and so is
// whatever is computed, until it is rounded to T when it is stored.
#pragma once

#include "../common/simd/gemm_block.hpp"
#include "../common/simd/names.hpp"

namespace moe {

template <class T>
struct TypedLoops {
  // y = act(gate) * up * weight, n elements. By ENG_ACT_*, from silu.
  void (*gated[4])(const T* gate, const T* up, float weight, T* y, int64_t n);
  // Its gradients; dgate and dup may be gate and up. Returns that of the weight.
  float (*gated_grad[4])(const T* dy, const T* gate, const T* up, float weight, T* dgate, T* dup, int64_t n);
  // y = the sum of the rows first[place[0]], first[place[1]] ... of n elements each, of which there are k.
  void (*sum_rows)(const T* first, const int32_t* place, int64_t k, T* y, int64_t n);
  void (*widen)(const T* x, float* y, int64_t n);
  void (*narrow)(const float* x, T* y, int64_t n);
};

struct Loops {
  TypedLoops<float> f32;
  TypedLoops<cpu::bf16> bf16;
  TypedLoops<cpu::f16> f16;
  float (*exps)(float* x, float most, int64_t n);  // x = exp(x - most); returns their sum

  // Inlined always: this header is also read by files for newer instruction sets, whose copies must not be shared.
  template <class T>
  __attribute__((always_inline)) const TypedLoops<T>& of() const {
    if constexpr (__is_same(T, float))
      return f32;
    else if constexpr (__is_same(T, cpu::bf16))
      return bf16;
    else
      return f16;
  }
};

// Products, see common/simd/gemm_tile.hpp.
struct Tiles {
  cpu::PackA pack_a[cpu::stored_kinds];
  void (*multiply[cpu::stored_kinds])(const cpu::Block&);
  // C = sums + plus in 16 bits, rounded once; plus may be null. By [what C is][whether plus is f32].
  void (*round_sums[cpu::stored_kinds][2])(int64_t rows, int64_t columns, const float* sums, int64_t ld,
                                           const void* plus, int64_t plus_stride, void* c, int64_t ldc);
};

struct Isa {
  const char* name;
  const Loops* loops;
  const Tiles* tiles;
};

#define MOE_JOIN_OF(a, b) a##b
#define MOE_JOIN(a, b) MOE_JOIN_OF(a, b)
extern const Loops loops_portable, loops_avx2, loops_avx512;
extern const Tiles tiles_portable, tiles_avx2, tiles_avx512;

}  // namespace moe
