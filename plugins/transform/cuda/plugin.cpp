// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_CUDA_KERNELS(fp8::cuda_kernels, "eng.fp8-cuda", "Products in fp8 on GPUs",
                 "Kernels of the ops of products of 8 bits for the device cuda",
                 "e4m3 and e5m2 of f32, bf16 and f16; products by cuBLASLt, on GPUs of sm_89 and newer")
