// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 BF16 alone.
#include "pairs_tile.hpp"

namespace cpu {

extern const Pairs pairs_avx512;
const Pairs pairs_avx512 = {CPU_ISA::pack_a_pairs, CPU_ISA::multiply_pairs};

}  // namespace cpu
