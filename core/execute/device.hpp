// SPDX-License-Identifier: Apache-2.0
// A device plugin in use: its memory and its kernels.
#pragma once

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "engine/kernel.h"

namespace eng {

// The kernels for one device type; needs no device.
class Kernels {
 public:
  Kernels(Registry& registry, const std::string& device, const Section& options);
  const eng_device_info& info() const { return info_; }
  const std::string& device() const { return device_; }
  // Throws Error(Exit::environment) if no kernel serves the call. Plugins that bring kernels for this device are
  // loaded one after the other until one has that op: the device's own first, then those that the run uses.
  const eng_kernel& find(const Call& call) const;
  uint64_t workspace(const Call& call) const;

 private:
  void load(const Candidate& from) const;
  Registry& registry_;
  std::string device_;
  eng_device_info info_{};
  mutable std::map<std::string, eng_kernel> kernels_;
  mutable std::vector<const Candidate*> loaded_;
};

// Adds the kernels of a plugin. Throws Error(Exit::environment) that begins with `whose`, as the next one does.
void load_kernels(const eng_kernels& list, const std::string& whose, std::map<std::string, eng_kernel>& into);
uint64_t kernel_workspace(const eng_kernel& kernel, const Call& call, uint32_t parallel, const std::string& whose);

// An eng_call that borrows a Call. `parallel` holds where the call has no number of its own.
class CallArgs {
 public:
  CallArgs(const Call& call, uint32_t parallel);
  const eng_call* get() const { return &call_; }

 private:
  std::vector<eng_attr> attrs_;
  eng_call call_{};
};

class Device {
 public:
  Device(Registry& registry, const std::string& name, const Section& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  void* self() const { return self_; }
  void* alloc(uint64_t bytes);
  void free(void* arena, uint64_t bytes) { table_.free(self_, arena, bytes); }
  void upload(void* to, const void* from, uint64_t bytes);
  void download(void* to, const void* from, uint64_t bytes);
  void sync();

 private:
  std::string name_;
  eng_device table_{};
  void* self_ = nullptr;
};

}  // namespace eng
