// SPDX-License-Identifier: Apache-2.0
// The device "cuda": one GPU of this machine. An arena is one allocation, a queue is a stream, a segment is a graph.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../common/cuda/launch.hpp"
#include "attention_choice.hpp"
#include "engine/device.h"
#include "engine/plugin.h"
#include "errors.hpp"
#include "kernels/list.hpp"

struct cublasLtContext;

namespace cuda {

inline const eng_host* host = nullptr;  // set when the plugin is started

// eng_device_info.settings: [device] workspace, in bytes.
constexpr size_t workspace_setting = 0;

struct Options {
  std::string describe;     // the card that is meant; "": the GPU that is here
  uint64_t workspace = 0;   // bytes: the most scratch of a matrix product
  uint64_t loss_chunk = 0;  // tokens whose logits exist at a time
  AttentionOptions attention;
  bool synchronous = false;
  bool tune = false;
};
// Algorithms by product and who computes attention, as text (choices.cpp).
struct Choices {
  bool measure = false;  // prepare measures; else it takes what is here, or decides from the call alone
  std::map<std::string, std::string> algorithms;
  Served attention;
};
// Throws Error.
Options options_of(const eng_options* options);

// The device that eng_device.create makes; the argument `device` of eng_kernel.prepare.
struct Device {
  int index = 0;  // among the visible devices
  Options options;
  cudaDeviceProp properties{};
  std::vector<cudaStream_t> queues;
  std::shared_ptr<cublasLtContext> blas;
  Choices choices;
  std::shared_ptr<void> cudnn;  // its handle, made when the first kernel needs it
  void* cudnn_queue = nullptr;  // the stream that the handle works on
  std::string ended;            // why the context ended; "" while it lives

  // Makes the device the current one of this thread. Throws Error if its context has ended.
  void enter() const;
  // check(), which names the queue, and remembers an error that ends the context.
  void check(cudaError_t error, std::string_view doing, void* queue = nullptr, bool known = false);
  std::string queue_name(void* queue) const;
};

inline Device& of(void* self) {
  return *static_cast<Device*>(self);
}

std::string device_name();

// Calls CUDA in a function of the table: body(device), with its GPU the current one of this thread.
template <class Body>
eng_status entered(void* self, eng_error* sink, Body&& body) {
  return guarded(sink, device_name, [&] {
    of(self).enter();
    body(of(self));
  });
}
// Like `entered`, for functions that release something and can report nothing.
template <class Body>
void quietly(void* self, Body&& body) {
  cudaSetDevice(of(self).index);
  body();
  cudaGetLastError();
}

// The parts of the table.
void add_choices(eng_device& table);
void add_describe(eng_device& table);
void add_inspect(eng_device& table);
void add_memory(eng_device& table);
void add_streams(eng_device& table);
const eng_device& device_table();

// The kernels of this device that are no code for GPUs. eng.copy/1 is between memory of the device and pinned memory of
// the host.
void add_copy(List& list);
// Puts a kernel in the place of each one for attention and its gradient that asks choose_attention who computes a call:
// cuDNN, or the kernel that was there.
void add_cudnn_attention(List& list);

// The number of visible devices; if it is 0, `why` says what is missing.
int device_count(std::string& why);
// The versions of CUDA, such as "13.0". driver: what it supports; "": there is none.
struct Versions {
  std::string driver, runtime;
};
Versions versions();
// Lines with the version and the file of each library of CUDA that this process has or can load.
std::string libraries();
// Throws Error.
cudaDeviceProp properties_of(int index);
// The architecture number: 90 for sm_90.
uint32_t arch_of(const cudaDeviceProp& properties);
// "NVIDIA H100 80GB HBM3, sm_90, 132 processors".
std::string text_of(const cudaDeviceProp& properties);
// Returns a text from a function of the table: all of its size, and what has room.
void put_text(const std::string& all, char* text, uint64_t capacity, uint64_t* size);

}  // namespace cuda
