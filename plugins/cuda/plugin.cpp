// SPDX-License-Identifier: Apache-2.0
#include "../common/cuda/kernels_plugin.hpp"
#include "blas.hpp"
#include "device.hpp"
#include "monitor.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.cuda'\n"
    "name = 'cuda'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'NVIDIA GPUs, by CUDA 13'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'One NVIDIA GPU for each rank'\n"
    "[provides.options.workspace]\n"
    "type = 'bytes'\n"
    "default = '32MiB'\n"
    "min = 0\n"
    "help = 'the most scratch of a matrix product'\n"
    "[provides.options.loss_chunk]\n"
    "type = 'int'\n"
    "default = 4096\n"
    "min = 1\n"
    "help = 'tokens whose logits exist at a time: fewer take less memory and more time'\n"
    "[provides.options.pad_vocabulary]\n"
    "type = 'int'\n"
    "default = 64\n"
    "min = 1\n"
    "max = 65536\n"
    "resume = 'note'\n"
    "help = 'the weight of a head has a multiple of so many rows in memory; 1: its own'\n"
    "[provides.options.attention]\n"
    "type = 'string'\n"
    "default = 'auto'\n"
    "choices = ['auto', 'cudnn', 'own']\n"
    "help = 'who computes attention; auto: cuDNN where it can within attention_workspace, else own kernels'\n"
    "[provides.options.attention_workspace]\n"
    "type = 'bytes'\n"
    "default = '512MiB'\n"
    "min = 0\n"
    "help = 'the most scratch of attention by cuDNN'\n"
    "[provides.options.cudnn]\n"
    "type = 'string'\n"
    "default = '9.19.0'\n"
    "choices = ['9.19.0', '9.27.0']\n"
    "help = 'the cuDNN whose scratch is planned; another one runs if it wants no more'\n"
    "[provides.options.tune]\n"
    "type = 'bool'\n"
    "default = false\n"
    "resume = 'note'\n"
    "help = 'measure the algorithms of each product once, and take the fastest in the whole run'\n"
    "[provides.options.synchronous]\n"
    "type = 'bool'\n"
    "default = false\n"
    "help = 'wait for each launch, so that an error is told with its op; slow'\n"
    "[[provides]]\n"
    "kind = '" ENG_MONITOR_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'What NVML measures of a GPU'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'The standard ops on GPUs'\n")

namespace {

cuda::List all_kernels() {
  cuda::library::table = &cuda::blas::products;
  cuda::List all = cuda::kernels();
  cuda::add_copy(all), cuda::add_cudnn_attention(all);
  return all;
}

using Kernels = cuda::KernelsPlugin<all_kernels, eng_description>;

const void* get_interface(const char* kind, const char* name) {
  if (common::Asked{kind, name}(ENG_DEVICE_KIND, "cuda")) return &cuda::device_table();
  if (common::Asked{kind, name}(ENG_MONITOR_KIND, "cuda")) return &cuda::monitor_table;
  return Kernels::get_interface(kind, name);
}

constexpr eng_plugin plugin = {ENG_PLUGIN_INIT, Kernels::describe, Kernels::start, common::stop_nothing, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
