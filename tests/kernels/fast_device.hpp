// SPDX-License-Identifier: Apache-2.0
// Runs single kernels of the cpu device, loaded from its plugin file, or from that of the optimizer adamw8bit.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "engine/plugin.h"

namespace fast {

struct TextError {
  eng_error sink{};
  std::string text;
  TextError() {
    sink.struct_size = sizeof sink;
    sink.data = this;
    sink.set = [](eng_error* self, eng_status, const char* t, uint64_t n) {
      static_cast<TextError*>(self->data)->text.assign(t, n);
    };
  }
};

// Options of the device: an int "threads" and a string "isa".
struct DeviceOptions {
  eng_options table{};
  int64_t threads;
  std::string isa;
  DeviceOptions(int64_t n, std::string set) : threads(n), isa(std::move(set)) {
    table.struct_size = sizeof table;
    table.data = this;
    table.get_int = [](const eng_options* o, const char* key, int64_t* out, eng_error*) -> eng_status {
      if (std::strcmp(key, "threads") != 0) return ENG_NOT_FOUND;
      *out = static_cast<const DeviceOptions*>(o->data)->threads;
      return ENG_OK;
    };
    table.get_string = [](const eng_options* o, const char* key, const char** out, eng_error*) -> eng_status {
      if (std::strcmp(key, "isa") != 0) return ENG_NOT_FOUND;
      *out = static_cast<const DeviceOptions*>(o->data)->isa.c_str();
      return ENG_OK;
    };
  }
  DeviceOptions(const DeviceOptions&) = delete;
};

inline const eng_plugin& load(const std::string& name) {
  const std::string path = std::string(ENGINE_PLUGIN_DIR) + "/" + name + ".eng.so";
  void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!file) throw std::runtime_error(dlerror());
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(file, "eng_plugin_query_1"));
  const eng_plugin* p = query(ENG_ABI_MINOR);
  if (p->start(nullptr, nullptr) != ENG_OK) throw std::runtime_error("start failed");
  return *p;
}
inline const eng_plugin& plugin() {
  static const eng_plugin& loaded = load("cpu/cpu");
  return loaded;
}
inline const eng_device& device_table() {
  return *static_cast<const eng_device*>(plugin().get_interface(ENG_DEVICE_KIND, "cpu"));
}
inline const eng_kernel& find_kernel(const std::string& op) {
  const auto find = [&](const eng_plugin& from) -> const eng_kernel* {
    const auto& all = *static_cast<const eng_kernels*>(from.get_interface(ENG_KERNELS_KIND, "cpu"));
    for (uint32_t k = 0; k < all.count; ++k)
      if (op == all.kernels[k]->op) return all.kernels[k];
    return nullptr;
  };
  if (const eng_kernel* found = find(plugin())) return *found;
  static const eng_plugin& optimizer = load("optim/adamw8bit");
  if (const eng_kernel* found = find(optimizer)) return *found;
  throw std::runtime_error("no kernel " + op);
}

struct Device {
  DeviceOptions options;
  void* self = nullptr;
  explicit Device(int64_t threads = 1, const std::string& isa = "auto") : options(threads, isa) {
    TextError error;
    if (device_table().create(&options.table, 0, &self, &error.sink) != ENG_OK) throw std::runtime_error(error.text);
  }
  ~Device() {
    if (self) device_table().destroy(self);
  }
  Device(const Device&) = delete;
};
inline bool isa_present(const std::string& isa) {
  void* self = nullptr;
  DeviceOptions options(1, isa);
  if (device_table().create(&options.table, 0, &self, nullptr) != ENG_OK) return false;
  device_table().destroy(self);
  return true;
}

// A dense tensor of 4-byte elements, 64-byte aligned, with a guard behind it that must stay untouched.
struct Tensor {
  static constexpr size_t guard = 64;
  eng_desc desc{};
  std::shared_ptr<float> memory;
  int64_t count = 1;

  Tensor() = default;
  explicit Tensor(const std::vector<int64_t>& dims, int32_t dtype = ENG_F32) {
    desc.dtype = dtype, desc.ndim = static_cast<uint32_t>(dims.size());
    for (size_t k = 0; k < dims.size(); ++k) desc.dims[k] = dims[k], count *= dims[k];
    memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes())), std::free);
    std::memset(memory.get(), 0x7f, bytes());  // neither zero nor a usual value
  }
  size_t bytes() const { return (static_cast<size_t>(count) * 4 + 63) / 64 * 64 + guard; }
  float* data() const { return memory.get(); }
  int32_t* ints() const { return reinterpret_cast<int32_t*>(memory.get()); }
  float& operator[](int64_t k) const { return memory.get()[k]; }
  bool guard_intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(memory.get() + count);
    for (size_t k = 0; k < guard; ++k)
      if (bytes[k] != 0x7f) return false;
    return true;
  }
  Tensor clone() const {
    Tensor copy(std::vector<int64_t>(desc.dims, desc.dims + desc.ndim), desc.dtype);
    std::memcpy(copy.data(), data(), static_cast<size_t>(count) * 4);
    return copy;
  }
  bool same_bits(const Tensor& other) const {
    return count == other.count && std::memcmp(data(), other.data(), static_cast<size_t>(count) * 4) == 0;
  }
};

inline Tensor random_tensor(const std::vector<int64_t>& dims, uint32_t seed, float scale = 1.0f) {
  Tensor t(dims);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  for (int64_t k = 0; k < t.count; ++k) t[k] = normal(random);
  return t;
}

// max|a-b| / max|b|; infinite when a is not finite.
inline double error_of(const Tensor& a, const std::vector<double>& b) {
  double worst = 0, largest = 0;
  for (int64_t k = 0; k < a.count; ++k) {
    const double want = b[static_cast<size_t>(k)];
    if (!std::isfinite(a[k])) return INFINITY;
    worst = std::max(worst, std::fabs(a[k] - want)), largest = std::max(largest, std::fabs(want));
  }
  return largest > 0 ? worst / largest : worst;
}

// One arena of the device for tensors, as the engine places those of a step; the operating system may give it large
// pages. `bytes`: for all of them, each rounded up to 64 bytes.
class Arena {
 public:
  Arena(const Device& device, uint64_t bytes) : left_(bytes) {
    void* arena = nullptr;
    TextError error;
    if (device_table().alloc(device.self, ENG_MEMORY_DEVICE, bytes, &arena, &error.sink) != ENG_OK)
      throw std::runtime_error(error.text);
    memory_.reset(static_cast<float*>(arena),
                  [self = device.self, bytes](float* p) { device_table().free(self, ENG_MEMORY_DEVICE, p, bytes); });
    next_ = memory_.get();
  }
  // A copy of the tensor in the arena, with its guard.
  Tensor place(Tensor t) {
    const uint64_t bytes = t.bytes();
    if (bytes > left_) throw std::runtime_error("the arena is full");
    std::memcpy(next_, t.data(), bytes);
    t.memory = std::shared_ptr<float>(memory_, next_);
    next_ += bytes / sizeof(float), left_ -= bytes;
    return t;
  }

 private:
  std::shared_ptr<float> memory_;
  float* next_ = nullptr;
  uint64_t left_;
};

// A kernel prepared and bound; tensors with desc.dtype 0 are absent inputs. The workspace is in the arena, if there is
// one.
class Run {
 public:
  Run(const Device& device, uint32_t threads, const std::string& op, const std::vector<Tensor>& in,
      const std::vector<Tensor>& out, const std::vector<eng_attr>& attrs = {}, Arena* arena = nullptr)
      : kernel_(find_kernel(op)), out_(out) {
    std::vector<eng_desc> in_desc, out_desc;
    for (const auto& t : in) in_desc.push_back(t.desc);
    for (const auto& t : out) out_desc.push_back(t.desc);
    const eng_call call{sizeof(eng_call),
                        threads,
                        static_cast<uint32_t>(in.size()),
                        static_cast<uint32_t>(out.size()),
                        in_desc.data(),
                        out_desc.data(),
                        attrs.data(),
                        static_cast<uint32_t>(attrs.size()),
                        0,
                        nullptr};
    TextError error;
    check(kernel_.workspace(&call, &workspace_bytes, &error.sink), error);
    check(kernel_.prepare(device.self, &call, &state_, &error.sink), error);
    workspace_ = Tensor({static_cast<int64_t>(workspace_bytes + 3) / 4});
    if (arena) workspace_ = arena->place(workspace_);
    std::vector<DLTensor> views;
    std::vector<const DLTensor*> args;
    std::vector<Tensor> all = in;
    all.insert(all.end(), out.begin(), out.end());
    for (const auto& t : all) {
      DLTensor v{};
      v.data = t.data(), v.device = {kDLCPU, 0}, v.ndim = static_cast<int32_t>(t.desc.ndim);
      views.push_back(v);
    }
    for (size_t k = 0; k < all.size(); ++k) args.push_back(all[k].desc.dtype ? &views[k] : nullptr);
    check(
        kernel_.bind(state_, args.data(), static_cast<uint32_t>(args.size()), workspace_.data(), &record_, &error.sink),
        error);
  }
  ~Run() {
    if (record_) kernel_.drop_record(record_);
    if (state_) kernel_.drop_state(state_);
  }
  Run(const Run&) = delete;
  eng_status try_launch(std::string* text = nullptr) {
    const eng_exec exec{sizeof(eng_exec), 0, nullptr};
    TextError error;
    const eng_status status = kernel_.launch(record_, &exec, &error.sink);
    if (text) *text = error.text;
    return status;
  }
  void launch() {
    const eng_exec exec{sizeof(eng_exec), 0, nullptr};
    TextError error;
    check(kernel_.launch(record_, &exec, &error.sink), error);
  }
  // Nothing was written behind the workspace and the outputs.
  bool guards_intact() const {
    for (const auto& t : out_)
      if (!t.guard_intact()) return false;
    return workspace_.guard_intact();
  }
  uint64_t workspace_bytes = 0;

 private:
  static void check(eng_status status, const TextError& error) {
    if (status != ENG_OK)
      throw std::runtime_error(error.text.empty() ? "status " + std::to_string(status) : error.text);
  }
  const eng_kernel& kernel_;
  std::vector<Tensor> out_;
  Tensor workspace_;
  void* state_ = nullptr;
  void* record_ = nullptr;
};

}  // namespace fast
