// SPDX-License-Identifier: Apache-2.0
// A loaded device plugin: its memory, queues and kernels.
#pragma once

#include <deque>

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "engine/kernel.h"

namespace eng {

// A device's options without a configuration: its defaults.
Section default_options(const Registry& registry, const std::string& device);

// The kernels for one device type; creates no device.
class Kernels {
 public:
  // If the device's description names a fallback, its kernels are made too. Throws Error(Exit::environment) if one of
  // the two has memory of its own.
  Kernels(Registry& registry, const std::string& device, const Section& options);
  const eng_device_info& info() const { return info_; }
  const std::string& device() const { return device_; }
  // True if the device's memory is host memory.
  bool host_memory() const { return info_.flags & ENG_DEVICE_HOST_MEMORY; }
  // The first kernel that supports the call: of the device's own plugin, then of plugins that the run has loaded. If
  // none of these has the op at all, loads other plugins until one has. Throws Error(Exit::environment) with the
  // answers of all plugins asked. What none of them serves is asked of the fallback, if there is one.
  const eng_kernel& find(const Call& call) const { return choose(call).kernel; }
  uint64_t workspace(const Call& call) const;                  // its bound of scratch, in bytes
  const Kernels* fallback() const { return fallback_.get(); }  // null: the device leaves no op to another one
  // The kernels that serve the call: `*this` or `*fallback()`.
  const Kernels& serving(const Call& call) const { return *choose(call).of; }

 private:
  struct Known {
    eng_kernel kernel;
    std::string plugin;
    const Kernels* of;
  };
  const Known& choose(const Call& call, uint64_t* workspace = nullptr) const;
  void load(const Candidate& from) const;
  bool load_next(bool used) const;
  Registry& registry_;
  std::string device_;
  eng_device_info info_{};
  mutable std::map<std::string, std::deque<Known>> kernels_;  // by op, in the order of asking
  mutable std::vector<const Candidate*> loaded_;
  std::unique_ptr<Kernels> fallback_;
};

// The kernels of a plugin, by op. Throws Error(Exit::environment), prefixed with `whose`.
std::map<std::string, eng_kernel> load_kernels(const eng_kernels& list, const std::string& whose);

// An eng_call that borrows a Call. `parallel` applies if the call has no thread count of its own.
class CallArgs {
 public:
  CallArgs(const Call& call, uint32_t parallel, const eng_device_info* device = nullptr);
  const eng_call* get() const { return &call_; }
  // Asks the kernel for its bound of scratch; refuses more than 2^48 bytes.
  eng_status workspace(const eng_kernel& kernel, uint64_t& bytes, Sink& sink) const;

 private:
  const std::vector<eng_attr> attrs_;
  const eng_call call_;
};

class Device {
 public:
  // `local_rank`: index of this process on its machine. If the description names a fallback, that is made too.
  Device(Registry& registry, const std::string& name, const Section& options, uint32_t local_rank = 0);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  const std::string& name() const { return name_; }
  // This device or its fallback: the one of these kernels.
  Device& of(const Kernels& kernels) { return fallback_ && kernels.device() == fallback_->name() ? *fallback_ : *this; }
  void* self() const { return self_; }
  const eng_device& table() const { return table_; }
  // `memory`: ENG_MEMORY_*. Throws Error(Exit::device_memory or host_memory) if the device refuses.
  void* alloc(int32_t memory, uint64_t bytes);
  void free(int32_t memory, void* arena, uint64_t bytes) { table_.free(self_, memory, arena, bytes); }
  void upload(void* to, const void* from, uint64_t bytes);
  void download(void* to, const void* from, uint64_t bytes);
  void sync();
  // Algorithms that kernels chose by measuring (eng_device.choices); "" if there are none.
  std::string choices();
  // Gives it those of another process or an earlier run, before a plan is bound. Throws Error(Exit::environment).
  void choose(const std::string& choices);
  bool measures() const { return table_.choices && table_.choose; }
  // Calls a function of the table: `self` is its first argument, an error sink the last. Throws
  // Error(Exit::environment) with the device's name and `what`.
  template <class F, class... Args>
  void call(const char* what, F function, Args... args) {
    const auto who = [&] { return "device " + name_ + ", " + what; };
    call_plugin(Exit::environment, who, function, self_, args...);
  }

 private:
  std::string name_;
  eng_device table_{};
  void* self_ = nullptr;
  std::unique_ptr<Device> fallback_;
};

}  // namespace eng
