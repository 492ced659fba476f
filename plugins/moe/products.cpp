// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with that set's compiler flags and CPU_ISA = avx512, avx2 or portable.
#include "../common/simd/gemm_tile.hpp"
#include "loops.hpp"

namespace moe {

using cpu::bf16;
using cpu::f16;

extern const Tiles MOE_JOIN(tiles_, CPU_ISA) = {
    {cpu::CPU_ISA::pack_a<float>, cpu::CPU_ISA::pack_a<bf16>, cpu::CPU_ISA::pack_a<f16>},
    {cpu::CPU_ISA::multiply<float>, cpu::CPU_ISA::multiply<bf16>, cpu::CPU_ISA::multiply<f16>},
    {{},
     {cpu::CPU_ISA::round_sums<bf16, bf16>, cpu::CPU_ISA::round_sums<bf16, float>},
     {cpu::CPU_ISA::round_sums<f16, f16>, cpu::CPU_ISA::round_sums<f16, float>}}};

}  // namespace moe
