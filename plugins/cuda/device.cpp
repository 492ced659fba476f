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
    std::string why;
    const int visible = device_count(why);
    if (visible == 0) throw Error{ENG_UNAVAILABLE, why};
    device->index = gpu_of_rank(local_rank, visible);
    if (device->index < 0) throw Error{ENG_UNAVAILABLE, too_few_gpus(local_rank, visible)};
    device->enter();
    device->properties = properties_of(device->index);
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

Options options_of(const eng_options* given) {
  Options out;
  if (!given) return out;
  const auto flag = [&](const char* key) { return option(given->get_bool, given, key, 0) != 0; };
  const auto text = [&](const char* key) { return std::string(option(given->get_string, given, key, "")); };
  const auto number = [&](const char* key, int64_t usual, int64_t least, const char* wanted) {
    const int64_t n = option(given->get_int, given, key, usual);
    if (n < least) throw Error{ENG_INVALID, std::string(key) + " = " + std::to_string(n) + ": give " + wanted};
    return static_cast<uint64_t>(n);
  };
  out.describe = text("describe"), out.synchronous = flag("synchronous"), out.tune = flag("tune");
  out.workspace = number("workspace", 32 << 20, 0, "0 or more bytes");
  out.loss_chunk = number("loss_chunk", library::usual_loss_chunk, 1, "1 token or more");
  const std::string who = text("attention"), cudnn = text("cudnn");
  constexpr std::string_view asked[] = {"auto", "cudnn", "own", "own-wgmma"};
  for (uint64_t k = 0; k < std::size(asked); ++k)
    if (who == asked[k]) out.attention.who = k;
  out.attention.cap = number("attention_workspace", static_cast<int64_t>(out.attention.cap), 0, "0 or more bytes");
  if (!cudnn.empty()) out.attention.version = sdpa::known_version(cudnn);
  if (out.attention.version == 0)
    throw Error{ENG_INVALID, "cudnn = \"" + cudnn + "\": its scratch is not known; give one of the option's choices"};
  return out;
}

Versions versions() {
  int driver = 0, runtime = 0;
  if (!worked(cudaDriverGetVersion(&driver))) driver = 0;
  cudaRuntimeGetVersion(&runtime);
  const auto text = [](int n) { return std::to_string(n / 1000) + "." + std::to_string(n % 1000 / 10); };
  return {driver ? text(driver) : "", text(runtime)};
}

int device_count(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (worked(error) && count > 0) return count;
  const auto [driver, runtime] = versions();
  if (error == cudaErrorInsufficientDriver && driver.empty())
    why = "there is no NVIDIA driver (libcuda.so.1) on this machine: install one for CUDA " + runtime +
          " or later, or set [device] plugin = \"cpu\"";
  else if (error == cudaErrorInsufficientDriver)
    why =
        "the NVIDIA driver is too old: it supports CUDA " + driver + ", and this build needs " + runtime +
        ": update the driver to 580 or later; on a data-centre card, such as an A100 or A800, NVIDIA's "
        "forward-compatibility package cuda-compat-13-0 is enough, with its folder, /usr/local/cuda-13.0/compat, first "
        "in LD_LIBRARY_PATH; or set [device] plugin = \"cpu\"";
  else if (error == cudaErrorCompatNotSupportedOnDevice)
    why =
        "NVIDIA's forward-compatibility package (cuda-compat) is in use, and this card does not support it, as only "
        "data-centre cards do: take it out of LD_LIBRARY_PATH and update the driver to 580 or later, or set [device] "
        "plugin = \"cpu\"";
  else if (error == cudaErrorNoDevice || error == cudaSuccess)
    why =
        "no GPU is visible: see nvidia-smi, and whether CUDA_VISIBLE_DEVICES is set to nothing; without a GPU "
        "set [device] plugin = \"cpu\"";
  else
    why = "CUDA does not start: " + text_of(error);
  return 0;
}

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, index), "reading the properties of the GPU");
  return p;
}

void put_text(const std::string& all, char* text, uint64_t capacity, uint64_t* size) {
  *size = all.size();
  if (capacity) std::memcpy(text, all.data(), std::min<uint64_t>(all.size(), capacity));
}

uint32_t arch_of(const cudaDeviceProp& properties) {
  return static_cast<uint32_t>(properties.major * 10 + properties.minor);
}
std::string text_of(const cudaDeviceProp& p) {
  return std::string(p.name) + ", sm_" + std::to_string(arch_of(p)) + ", " + std::to_string(p.multiProcessorCount) +
         " processors";
}

void Device::enter() const {
  if (!ended.empty()) throw Error{ENG_UNAVAILABLE, ended};
  cuda::check(cudaSetDevice(index), "selecting GPU " + std::to_string(index));
}

std::string Device::queue_name(void* queue) const {
  const auto at = std::find(queues.begin(), queues.end(), static_cast<cudaStream_t>(queue));
  return at == queues.end() ? "another queue" : "queue " + std::to_string(at - queues.begin());
}

void Device::check(cudaError_t error, std::string_view doing, void* queue, bool known) {
  if (error == cudaSuccess) return;
  const std::string text = (queue ? queue_name(queue) + ", " : "").append(doing);
  if (is_sticky(error)) ended = text + ": " + text_of(error, known);
  cuda::check(error, text, known);
}

// Called before and after a launch.
void enter(void* device, const eng_exec&) {
  of(device).enter();
}
// Waits for `synchronous`, too, so that an error is told with its op.
void finish(void* device, const eng_exec& exec) {
  Device& d = of(device);
  d.check(cudaGetLastError(), "launching", exec.queue);
  if ((exec.flags & ENG_EXEC_SYNC) || d.options.synchronous)
    d.check(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.queue)), "running", exec.queue, true);
}

const eng_device& device_table() {
  static const eng_device table = [] {
    eng_device t{};
    t.struct_size = sizeof t;
    t.minor = ENG_ABI_MINOR;
    t.create = create, t.destroy = destroy;
    add_choices(t), add_describe(t), add_inspect(t), add_memory(t), add_streams(t);
    return t;
  }();
  return table;
}

}  // namespace cuda
