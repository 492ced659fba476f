// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with that set's compiler flags and CPU_ISA = avx512, avx2 or portable.
#include "../../common/simd/gemm_tile.hpp"
#include "attention_step_tile.hpp"
#include "attention_tile.hpp"
#include "isa.hpp"
#include "softmax_tile.hpp"

#define CPU_TEXT_OF(x) #x
#define CPU_TEXT(x) CPU_TEXT_OF(x)
#define CPU_JOIN_OF(a, b) a##b
#define CPU_JOIN(a, b) CPU_JOIN_OF(a, b)

namespace cpu {
namespace CPU_ISA {

// Asked before anything else of this file runs, so it must not need the instruction set itself.
static bool supported() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

}  // namespace CPU_ISA

extern const Isa CPU_JOIN(isa_, CPU_ISA);
const Isa CPU_JOIN(isa_, CPU_ISA) = {CPU_TEXT(CPU_ISA),
                                     CPU_ISA::supported,
                                     {CPU_ISA::pack_a<float>, CPU_ISA::pack_a<bf16>, CPU_ISA::pack_a<f16>},
                                     {CPU_ISA::multiply<float>, CPU_ISA::multiply<bf16>, CPU_ISA::multiply<f16>},
                                     {{},
                                      {CPU_ISA::round_sums<bf16, bf16>, CPU_ISA::round_sums<bf16, float>},
                                      {CPU_ISA::round_sums<f16, f16>, CPU_ISA::round_sums<f16, float>}},
                                     CPU_ISA::attention_forward,
                                     CPU_ISA::attention_backward,
                                     CPU_ISA::attention_step,
                                     CPU_ISA::row_loss,
                                     CPU_ISA::cap_row,
                                     CPU_ISA::cap_row_grad,
                                     nullptr};

}  // namespace cpu
