// SPDX-License-Identifier: Apache-2.0
#include "all.hpp"

namespace cpu {
extern const simd_table simd_avx512 = all_loops;
}
