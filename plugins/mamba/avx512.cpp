// SPDX-License-Identifier: Apache-2.0
#include "loops_norm.hpp"

namespace mamba {
extern const Loops loops_avx512 = {"avx512", loops_for<float>, loops_for<bf16>, loops_for<f16>};
}
