// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "../common/cuda/visible.hpp"
#include "blas.hpp"
#include "engine/kernel.h"

namespace cuda {
namespace {

template <class T>
T option(eng_status (*get)(const eng_options*, const char*, T*, eng_error*), const eng_options* options,
         const char* key, T value) {
  const eng_status status = get(options, key, &value, nullptr);
  if (status != ENG_OK && status != ENG_NOT_FOUND)
    throw Error{status, std::string("option ") + key + " has another type"};
  return value;
}

eng_status create(const eng_options* given, uint32_t local_rank, void** self, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    auto device = std::make_unique<Device>();
    device->options = options_of(given);
    const int visible = device_count();
    device->index = gpu_of_rank(local_rank, visible);
    if (device->index < 0) throw Error{ENG_UNAVAILABLE, too_few_gpus(local_rank, visible)};
    device->enter();
    check(cudaGetDeviceProperties(&device->properties, device->index), "reading the properties of the GPU");
    if (arch_of(device->properties) < 80)
      throw Error{ENG_UNAVAILABLE, std::string(device->properties.name) + " is sm_" +
                                       std::to_string(arch_of(device->properties)) +
                                       ": its kernels need sm_80 (A100, RTX 30) or later"};
    check(cudaFree(nullptr), "making the context of " + std::string(device->properties.name));
    device->blas = blas::create();
    device->choices.measure = device->options.tune;
    *self = device.release();
  });
}

void destroy(void* self) {
  delete &of(self);
}

}  // namespace

std::string device_name() {
  return "device cuda";
}

Options options_of(const eng_options* options) {
  Options out;
  if (!options) return out;
  int32_t synchronous = 0;
  int64_t workspace = 32 << 20, attention_workspace = int64_t{512} << 20;
  const char *attention = "auto", *cudnn = "";
  out.synchronous = option(options->get_bool, options, "synchronous", synchronous) != 0;
  int32_t tune = 0;
  out.tune = option(options->get_bool, options, "tune", tune) != 0;
  workspace = option(options->get_int, options, "workspace", workspace);
  if (workspace < 0) throw Error{ENG_INVALID, "workspace = " + std::to_string(workspace) + ": give 0 or more bytes"};
  out.workspace = static_cast<uint64_t>(workspace);
  const int64_t loss_chunk = option(options->get_int, options, "loss_chunk", library::usual_loss_chunk);
  if (loss_chunk < 1) throw Error{ENG_INVALID, "loss_chunk = " + std::to_string(loss_chunk) + ": give 1 token or more"};
  out.loss_chunk = static_cast<uint64_t>(loss_chunk);
  attention = option(options->get_string, options, "attention", attention);
  out.attention.who = std::strcmp(attention, "own") == 0     ? AttentionOptions::own
                      : std::strcmp(attention, "cudnn") == 0 ? AttentionOptions::cudnn
                                                             : AttentionOptions::auto_;
  attention_workspace = option(options->get_int, options, "attention_workspace", attention_workspace);
  if (attention_workspace < 0)
    throw Error{ENG_INVALID, "attention_workspace = " + std::to_string(attention_workspace) + ": give 0 or more bytes"};
  out.attention.cap = static_cast<uint64_t>(attention_workspace);
  cudnn = option(options->get_string, options, "cudnn", cudnn);
  if (*cudnn) out.attention.version = sdpa::known_version(cudnn);
  if (out.attention.version == 0)
    throw Error{ENG_INVALID, "cudnn = \"" + std::string(cudnn) + "\": its scratch is not known; give \"" +
                                 sdpa::version_text(sdpa::known_versions[0]) + "\" or \"" +
                                 sdpa::version_text(sdpa::known_versions[1]) + "\""};
  return out;
}

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

int device_count() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError(), driver = 0;
  cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorInsufficientDriver && driver == 0)
    throw Error{ENG_UNAVAILABLE, "there is no NVIDIA driver (libcuda.so.1) on this machine: install one for CUDA " +
                                     version_text(runtime) + " or later, or set [device] plugin = \"cpu\""};
  if (error == cudaErrorInsufficientDriver)
    throw Error{ENG_UNAVAILABLE, "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
                                     ", and this build needs " + version_text(runtime) +
                                     ": update the driver, or set [device] plugin = \"cpu\""};
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    throw Error{ENG_UNAVAILABLE,
                "no GPU is visible: see nvidia-smi, and whether CUDA_VISIBLE_DEVICES is set to nothing; without a GPU "
                "set [device] plugin = \"cpu\""};
  throw Error{ENG_UNAVAILABLE, "CUDA does not start: " + text_of(error)};
}

uint32_t arch_of(const cudaDeviceProp& properties) {
  return static_cast<uint32_t>(properties.major * 10 + properties.minor);
}

void Device::enter() const {
  if (!ended.empty()) throw Error{ENG_UNAVAILABLE, ended};
  cuda::check(cudaSetDevice(index), "selecting GPU " + std::to_string(index));
}

std::string Device::queue_name(void* queue) const {
  const auto at = std::find(queues.begin(), queues.end(), static_cast<cudaStream_t>(queue));
  return at == queues.end() ? "another queue" : "queue " + std::to_string(at - queues.begin());
}

void Device::check(cudaError_t error, const std::string& doing, void* queue, bool known) {
  if (error == cudaSuccess) return;
  const std::string text = (queue ? queue_name(queue) + ", " : "") + doing;
  if (is_sticky(error)) ended = text + ": " + text_of(error, known);
  cuda::check(error, text, known);
}

void finish_launch(Device& device, const eng_exec& exec) {
  device.check(cudaGetLastError(), "launching", exec.queue);
  if ((exec.flags & ENG_EXEC_SYNC) || device.options.synchronous)
    device.check(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.queue)), "running", exec.queue, true);
}

// What the kernels' glue calls around a launch.
void enter(void* device, const eng_exec&) {
  of(device).enter();
}
void finish(void* device, const eng_exec& exec) {
  finish_launch(of(device), exec);
}

const eng_device& device_table() {
  static const eng_device table = [] {
    eng_device t{};
    t.struct_size = sizeof t;
    t.minor = ENG_ABI_MINOR;
    t.create = create, t.destroy = destroy;
    add_choices(t), add_describe(t), add_inspect(t), add_memory(t), add_streams(t), add_graph(t);
    return t;
  }();
  return table;
}

}  // namespace cuda
