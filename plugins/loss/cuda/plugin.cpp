// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(preference::cuda_kernels, "eng.loss-cuda", "Preferences on GPUs",
                 "Kernels of the ops of the loss preference for the device cuda",
                 "the same order of pairs as on the device cpu")
