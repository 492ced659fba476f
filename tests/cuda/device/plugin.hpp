// SPDX-License-Identifier: Apache-2.0
// cuda.eng.so as it ships, on the software CUDA runtime (emulated): its table, with options and errors. With
// CUDA_ANY_RUNTIME nothing of the software runtime is used, and the tests may run on a GPU (tools/gpu-check).
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "engine/plugin.h"
#ifndef CUDA_ANY_RUNTIME
#include "tests/cuda/runtime/software.hpp"
#endif

namespace cuda_test {

#ifdef CUDA_ANY_RUNTIME
constexpr bool software = false;
inline void software_cuda_reset() {}
inline uint64_t software_cuda_bytes(int) {
  return 0;
}
inline uint64_t software_cuda_graphs() {
  return 0;
}
#else
constexpr bool software = true;
#endif

inline const eng_plugin* load(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) throw std::runtime_error(dlerror());
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
  const eng_plugin* p = query(ENG_ABI_MINOR);
  if (p->start(nullptr, nullptr) != ENG_OK) throw std::runtime_error("does not start");
  return p;
}
inline const eng_plugin& plugin() {
  static const char* const given = std::getenv("ENG_TEST_DEVICE");
  static const eng_plugin* const one = load(given ? given : CUDA_PLUGIN);
  return *one;
}
inline const eng_device& table() {
  return *static_cast<const eng_device*>(plugin().get_interface(ENG_DEVICE_KIND, "cuda"));
}
inline const eng_kernel& kernel_of(const std::string& op, const eng_plugin& of = plugin()) {
  const auto& all = *static_cast<const eng_kernels*>(of.get_interface(ENG_KERNELS_KIND, "cuda"));
  for (uint32_t k = 0; k < all.count; ++k)
    if (all.kernels[k]->op == op) return *all.kernels[k];
  throw std::runtime_error("no kernel for " + op);
}
inline const eng_kernel& copy_kernel() {
  return kernel_of(ENG_OP_COPY);
}

// The environment of the runtime, for one test.
using Variables = std::map<std::string, std::string>;
class Machine {
 public:
  explicit Machine(Variables variables = {}) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
    software_cuda_reset();
  }
  ~Machine() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
    software_cuda_reset();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  Variables variables_;
};

struct Told {
  std::string text;
  eng_error sink{sizeof(eng_error), 0, this, [](eng_error* self, eng_status, const char* text, uint64_t length) {
                   static_cast<Told*>(self->data)->text.assign(text ? text : "", text ? length : 0);
                 }};
  operator eng_error*() { return &sink; }
};

// Given options; all others have no value.
struct Options {
  std::string describe;
  bool synchronous = false;
  std::optional<int64_t> workspace;
  bool tune = false;
  eng_options table{};
  explicit Options(std::string card = {}, bool sync = false, std::optional<int64_t> scratch = {})
      : describe(std::move(card)), synchronous(sync), workspace(scratch) {
    table.struct_size = sizeof table, table.minor = ENG_ABI_MINOR, table.data = this;
    table.get_bool = [](const eng_options* o, const char* key, int32_t* out, eng_error*) -> eng_status {
      const auto& own = *static_cast<const Options*>(o->data);
      if (std::strcmp(key, "tune") == 0) return *out = own.tune, ENG_OK;
      if (std::strcmp(key, "synchronous") != 0) return ENG_NOT_FOUND;
      return *out = own.synchronous, ENG_OK;
    };
    table.get_int = [](const eng_options* o, const char* key, int64_t* out, eng_error*) -> eng_status {
      const auto& own = *static_cast<const Options*>(o->data);
      if (std::strcmp(key, "workspace") != 0 || !own.workspace) return ENG_NOT_FOUND;
      return *out = *own.workspace, ENG_OK;
    };
    table.get_string = [](const eng_options* o, const char* key, const char** out, eng_error*) -> eng_status {
      const auto& own = *static_cast<const Options*>(o->data);
      if (std::strcmp(key, "describe") != 0 || own.describe.empty()) return ENG_NOT_FOUND;
      return *out = own.describe.c_str(), ENG_OK;
    };
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
};

inline eng_device_info describe(const Options& options) {
  eng_device_info info{};
  info.struct_size = sizeof info;
  Told told;
  if (table().describe(&options.table, &info, told) != ENG_OK) throw std::runtime_error(told.text);
  return info;
}
inline eng_device_info describe(const std::string& card = {}, bool synchronous = false) {
  return describe(Options(card, synchronous));
}

// A created device; `call` throws what it reports.
class Device {
 public:
  explicit Device(bool synchronous = false, uint32_t local_rank = 0) : Device(Options({}, synchronous), local_rank) {}
  explicit Device(const Options& options, uint32_t local_rank = 0) {
    Told told;
    if (table().create(&options.table, local_rank, &self, told) != ENG_OK) throw std::runtime_error(told.text);
  }
  ~Device() { table().destroy(self); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  template <class F, class... A>
  void call(F function, A... args) const {
    Told told;
    if (function(self, args..., told) != ENG_OK) throw std::runtime_error(told.text);
  }
  char* alloc(int32_t memory, uint64_t bytes) const {
    void* out = nullptr;
    call(table().alloc, memory, bytes, &out);
    return static_cast<char*>(out);
  }
  void* queue() const {
    void* out = nullptr;
    call(table().queue_create, &out);
    return out;
  }
  void* event(int timed = 0) const {
    void* out = nullptr;
    call(table().event_create, timed, &out);
    return out;
  }
  void* self = nullptr;
};

// eng.copy/1 of bytes, bound.
class Copy {
 public:
  Copy(const Device& device, void* to, void* from, int64_t bytes) {
    eng_desc d{};
    d.dtype = ENG_U8, d.ndim = 1, d.dims[0] = bytes;
    eng_call call{};
    call.struct_size = sizeof call, call.parallel = 1, call.n_in = call.n_out = 1, call.in = call.out = &d;
    Told told;
    if (copy_kernel().prepare(device.self, &call, &state_, told) != ENG_OK) throw std::runtime_error(told.text);
    int64_t stride = 1;
    const auto tensor = [&](void* data) {
      return DLTensor{data, {kDLCUDA, 0}, 1, {kDLUInt, 8, 1}, &bytes, &stride, 0};
    };
    const DLTensor in = tensor(from), out = tensor(to);
    const DLTensor* args[] = {&in, &out};
    if (copy_kernel().bind(state_, args, 2, nullptr, &record_, told) == ENG_OK) return;
    copy_kernel().drop_state(state_);
    throw std::runtime_error(told.text);
  }
  ~Copy() { copy_kernel().drop_record(record_), copy_kernel().drop_state(state_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  void launch(void* queue, uint32_t flags = 0) const {
    const eng_exec exec{sizeof(eng_exec), flags, queue};
    Told told;
    if (copy_kernel().launch(record_, &exec, told) != ENG_OK) throw std::runtime_error(told.text);
  }

 private:
  void *state_ = nullptr, *record_ = nullptr;
};

}  // namespace cuda_test
