// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(mamba::cuda_kernels, "eng.mamba-cuda", "Mamba on GPUs",
                 "Kernels of the ops of Mamba and Mamba-2 for the device cuda",
                 "f32, bf16 and f16; up to 64 states of a channel of Mamba")
