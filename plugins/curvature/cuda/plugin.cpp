// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(curvature::cuda_kernels, "eng.curvature-cuda", "The analysis of curvature on GPUs",
                 "Kernels of the ops of the job curvature for the device cuda", "the bits of the device cpu")
