// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.mamba-cuda'\n"
    "name = 'Mamba on GPUs'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'Kernels of the ops of Mamba for the device cuda'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'f32, bf16 and f16; up to 64 states of a channel'\n")

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &cuda::KernelsPlugin<mamba::cuda_kernels, eng_description>::plugin;
}
