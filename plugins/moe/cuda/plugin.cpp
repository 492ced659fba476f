// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(moe::cuda_kernels, "eng.moe-cuda", "Mixtures of experts on GPUs",
                 "Kernels of the ops of mixtures of experts for the device cuda",
                 "f32, bf16 and f16; products of 16 bits on tensor cores")
