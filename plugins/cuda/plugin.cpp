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
    "[provides.options]\n"
    "workspace = { type = 'bytes', default = '32MiB', min = 0, resume = 'note', "
    "help = 'the most scratch of a matrix product' }\n"
    "loss_chunk = { type = 'int', default = 4096, min = 1, resume = 'note', "
    "help = 'tokens whose logits exist at a time: fewer take less memory and more time' }\n"
    "pad_vocabulary = { type = 'int', default = 64, min = 1, max = 65536, resume = 'note', "
    "help = 'the weight of a head has a multiple of so many rows in memory; 1: its own' }\n"
    "attention = { type = 'string', default = 'auto', choices = ['auto', 'cudnn', 'own', 'own-wgmma'], "
    "resume = 'note', help = 'who computes it; auto: cuDNN where it can within attention_workspace, else own kernels' "
    "}\n"
    "attention_workspace = { type = 'bytes', choices = ['free'], min = 0, resume = 'note', help = 'the most scratch of "
    "attention by cuDNN; if absent, 1/64 of the memory of a card; free: as much as does not raise the planned peak' }\n"
    "cudnn = { type = 'string', default = '9.19.0', choices = ['9.19.0', '9.27.0'], resume = 'note', "
    "help = 'the cuDNN whose scratch is planned; another one computes what it can in that' }\n"
    "tune = { type = 'bool', default = false, resume = 'note', "
    "help = 'measure algorithms of products and kernels of attention, and take the fastest in the whole run' }\n"
    "synchronous = { type = 'bool', default = false, "
    "help = 'wait for each launch, so that an error is told with its op; slow' }\n"
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

eng_status start(const eng_host* by, eng_error* sink) {
  return cuda::host = by, Kernels::start(by, sink);
}

const void* get_interface(const char* kind, const char* name) {
  if (common::Asked{kind, name}(ENG_DEVICE_KIND, "cuda")) return &cuda::device_table();
  if (common::Asked{kind, name}(ENG_MONITOR_KIND, "cuda")) return &cuda::monitor_table;
  return Kernels::get_interface(kind, name);
}

constexpr eng_plugin plugin = {ENG_PLUGIN_INIT, Kernels::describe, start, common::stop_nothing, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
