// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(optim::cuda_kernels, "eng.optim-cuda", "Muon and AdamW with 8-bit moments on GPUs",
                 "Kernels of the ops of muon and adamw8bit for the device cuda", "the bits of the device cpu")
