// SPDX-License-Identifier: Apache-2.0
// The kernels of the plugin, by device type.
#pragma once

#include "../common/kernel.hpp"

namespace mamba {

extern const eng_kernels reference_kernels;
const eng_kernels* cpu_kernels();  // with the best instruction set of this processor
// The kernels of `cpu` for one instruction set ("portable", "avx2", "avx512"); nullptr if this processor lacks it.
const eng_kernels* isa_kernels(const char* name);

// For every device whose memory is host memory: copies of rows, and initial values.
extern const eng_kernel split_kernel, join_kernel, init_a_log_kernel, init_dt_bias_kernel, init_log_uniform_kernel;
// For `reference`: ssd, its step and gradient, the gated norm and its gradient.
extern const eng_kernel ssd_reference_kernels[5];
// For `reference`: the norm whose groups are divided, and its gradients.
extern const eng_kernel norm_part_reference_kernels[4];

}  // namespace mamba
