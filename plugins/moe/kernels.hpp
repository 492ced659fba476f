// SPDX-License-Identifier: Apache-2.0
// The kernels of the plugin, by device type.
#pragma once

#include "../common/kernel.hpp"

namespace moe {

extern const eng_kernels reference_kernels;
const eng_kernels* cpu_kernels();  // with the best instruction set of this processor
// The kernels of `cpu` for one instruction set ("portable", "avx2", "avx512"); nullptr if this processor lacks it.
const eng_kernels* isa_kernels(const char* name);

// For every device whose memory is host memory.
extern const eng_kernel balance_kernel, balance_grad_kernel, route_sigmoid_kernel, route_sigmoid_grad_kernel;

}  // namespace moe
