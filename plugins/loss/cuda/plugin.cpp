// SPDX-License-Identifier: Apache-2.0
#include "../../common/cuda/kernels_plugin.hpp"
#include "list.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.loss-cuda'\n"
    "name = 'Preferences on GPUs'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'Kernels of the ops of the loss preference for the device cuda'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'the same order of pairs as on the device cpu'\n")

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &cuda::KernelsPlugin<preference::cuda_kernels, eng_description>::plugin;
}
