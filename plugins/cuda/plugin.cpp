// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include <cstring>
#include <vector>

#include "attention_cudnn.hpp"
#include "blas.hpp"
#include "copy.hpp"
#include "device.hpp"
#include "kernels/list.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.cuda'\n"
    "name = 'cuda'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'NVIDIA GPUs, by CUDA 13'\n"
    "[[provides]]\n"
    "kind = 'eng.device/1'\n"
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
    "kind = 'eng.kernels/1'\n"
    "name = 'cuda'\n"
    "summary = 'The standard ops on GPUs'\n")

namespace {

const char* describe() {
  return eng_description;
}

std::vector<const eng_kernel*> collected;
eng_kernels table;

eng_status start(const eng_host*, eng_error*) {
  try {
    cuda::library::table = &cuda::blas::products;
    collected = cuda::kernels();
    collected.push_back(&cuda::copy_kernel);
    cuda::add_cudnn_attention(collected);
    table = {sizeof(eng_kernels), static_cast<uint32_t>(collected.size()), collected.data()};
    return ENG_OK;
  } catch (...) {
    return ENG_NO_MEMORY;
  }
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "cuda") != 0) return nullptr;
  if (std::strcmp(kind, ENG_DEVICE_KIND) == 0) return &cuda::device_table();
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return &table;
  return nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
