// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin.h"

#include <cstring>
#include <vector>

#include "device.hpp"
#include "kernels.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.cpu'\n"
    "name = 'cpu'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'Processor cores, by vector instructions on all of them'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'cpu'\n"
    "summary = 'The cores this process may run on'\n"
    "usual = true\n"
    "[provides.options.threads]\n"
    "type = 'int'\n"
    "default = 0\n"
    "min = 0\n"
    "max = 1024\n"
    "help = 'threads of one rank; 0: all physical cores the process may use, within its CPU quota'\n"
    "[provides.options.isa]\n"
    "type = 'string'\n"
    "default = 'auto'\n"
    "choices = ['auto', 'avx512_bf16', 'avx512', 'avx2', 'portable']\n"
    "help = 'auto: the best the processor has; a named set: the same bits on any processor that has it'\n"
    "[provides.options.pad_vocabulary]\n"
    "type = 'int'\n"
    "default = 1\n"
    "min = 1\n"
    "max = 65536\n"
    "help = 'the weight of a head has a multiple of so many rows in memory; 1: its own'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cpu'\n"
    "summary = 'The standard ops in fp32, for AVX-512, AVX2 and plain processors'\n")

namespace {

const char* describe() {
  return eng_description;
}

std::vector<const eng_kernel*> collected;
eng_kernels table;

eng_status start(const eng_host* host, eng_error*) {
  if (host) cpu::host_threads = static_cast<const eng_threads*>(host->get_extension(host, ENG_THREADS_EXTENSION));
  try {
    const auto add = [](const eng_kernel* const* kernels, uint32_t count) {
      collected.insert(collected.end(), kernels, kernels + count);
    };
    collected.clear();
    add(cpu::cross_entropy_kernels, cpu::cross_entropy_kernel_count);
    add(cpu::gemm_kernels, cpu::gemm_kernel_count);
    add(cpu::fp8_kernels, cpu::fp8_kernel_count);
    add(cpu::attention_kernels, cpu::attention_kernel_count);
    add(cpu::norm_kernels, cpu::norm_kernel_count);
    add(cpu::layer_norm_kernels, cpu::layer_norm_kernel_count);
    add(cpu::activation_kernels, cpu::activation_kernel_count);
    add(cpu::dropout_kernels, cpu::dropout_kernel_count);
    add(cpu::rope_kernels, cpu::rope_kernel_count);
    add(cpu::sequence_kernels, cpu::sequence_kernel_count);
    add(cpu::embedding_kernels, cpu::embedding_kernel_count);
    add(cpu::optimizer_kernels, cpu::optimizer_kernel_count);
    add(cpu::step_kernels, cpu::step_kernel_count);
    add(cpu::init_kernels, cpu::init_kernel_count);
    add(cpu::add_kernels, cpu::add_kernel_count);
    add(cpu::fold_kernels, cpu::fold_kernel_count);
    add(cpu::cast_kernels, cpu::cast_kernel_count);
    add(cpu::layout_kernels, cpu::layout_kernel_count);
    add(cpu::packed_kernels, cpu::packed_kernel_count);
    add(cpu::vocabulary_kernels, cpu::vocabulary_kernel_count);
    table = {sizeof(eng_kernels), static_cast<uint32_t>(collected.size()), collected.data()};
    return ENG_OK;
  } catch (...) {
    return ENG_NO_MEMORY;
  }
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "cpu") != 0) return nullptr;
  if (std::strcmp(kind, ENG_DEVICE_KIND) == 0) return &cpu::device_table;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return &table;
  return nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
