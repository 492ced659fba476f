// SPDX-License-Identifier: Apache-2.0
// The kernel families of the cpu device. Each family's file defines its own pair.
#pragma once

#include <cstdint>

#include "engine/kernel.h"

namespace cpu {

#define CPU_KERNEL_FAMILY(name)                    \
  extern const eng_kernel* const name##_kernels[]; \
  extern const uint32_t name##_kernel_count;

CPU_KERNEL_FAMILY(gemm)           // linear, matmul, sum_rows
CPU_KERNEL_FAMILY(fp8)            // those of the plugin eng.fp8
CPU_KERNEL_FAMILY(attention)      // attention, attention_window and their gradients
CPU_KERNEL_FAMILY(cross_entropy)  // cross_entropy, cross_entropy_grad
CPU_KERNEL_FAMILY(norm)
CPU_KERNEL_FAMILY(layer_norm)
CPU_KERNEL_FAMILY(rope)
CPU_KERNEL_FAMILY(sequence)    // rope_step, attention_step, attention_window_step
CPU_KERNEL_FAMILY(activation)  // activation, gated, their gradients, scale
CPU_KERNEL_FAMILY(dropout)
CPU_KERNEL_FAMILY(embedding)
CPU_KERNEL_FAMILY(optimizer)
CPU_KERNEL_FAMILY(step)
CPU_KERNEL_FAMILY(init)
CPU_KERNEL_FAMILY(add)
CPU_KERNEL_FAMILY(fold)
CPU_KERNEL_FAMILY(cast)
CPU_KERNEL_FAMILY(layout)      // reshape, transpose, split, concat
CPU_KERNEL_FAMILY(packed)      // pack, unpack
CPU_KERNEL_FAMILY(vocabulary)  // vocabulary_scores, vocabulary_loss, vocabulary_grad

#undef CPU_KERNEL_FAMILY

}  // namespace cpu
