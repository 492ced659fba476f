// SPDX-License-Identifier: Apache-2.0
#include "core/execute/device.hpp"

#include <algorithm>
#include <cstring>

namespace eng {

Kernels::Kernels(Registry& registry, const std::string& device, const Section& section)
    : registry_(registry), device_(device) {
  eng_device table = registry.table<eng_device>(ENG_DEVICE_KIND, device);
  Options options(section);
  Sink sink;
  info_.struct_size = sizeof(info_);
  sink.check(table.describe(options.get(), &info_, sink.get()), Exit::environment, "[device] " + device);
  const bool named = std::memchr(info_.name, 0, sizeof(info_.name));
  if (!named || !info_.parallel || info_.overhead_bytes > uint64_t{1} << 48 || !(info_.peak_f32 >= 0))
    throw Error(Exit::environment,
                fmt::format("device {} describes itself with parallel {}, overhead_bytes {}, peak_f32 {}, {}", device,
                            info_.parallel, info_.overhead_bytes, info_.peak_f32,
                            named ? "which cannot be" : "and a name without its final NUL"));
  const Candidate* own = registry.providers(ENG_DEVICE_KIND, device)[0];
  for (const Candidate* one : registry.providers(ENG_KERNELS_KIND, device))
    if (one == own) load(*one);
}

void load_kernels(const eng_kernels& list, const std::string& whose, std::map<std::string, eng_kernel>& into) {
  for (uint32_t k = 0; k < list.count; ++k) {
    eng_kernel kernel{};
    copy_entry(list.kernels[k], kernel, fmt::format("{}: kernel {} of the list", whose, k));
    if (!kernel.op || !kernel.workspace || !kernel.prepare || !kernel.bind || !kernel.launch || !kernel.drop_record ||
        !kernel.drop_state)
      throw Error(Exit::environment,
                  fmt::format("{}: kernel {} leaves a function out", whose, kernel.op ? kernel.op : "?"));
    if (!into.emplace(kernel.op, kernel).second)
      throw Error(Exit::environment, fmt::format("{}: two kernels for {}", whose, kernel.op));
  }
}

uint64_t kernel_workspace(const eng_kernel& kernel, const Call& call, uint32_t parallel, const std::string& whose) {
  CallArgs args(call, parallel);
  uint64_t bytes = 0;
  Sink sink;
  sink.check(kernel.workspace(args.get(), &bytes, sink.get()), Exit::environment,
             fmt::format("{}, {}", whose, call.op->id));
  if (bytes > uint64_t{1} << 48)
    throw Error(Exit::environment, fmt::format("{}, {}: its bound of scratch is {} bytes", whose, call.op->id, bytes));
  return bytes;
}

void Kernels::load(const Candidate& from) const {
  loaded_.push_back(&from);
  load_kernels(registry_.table_of<eng_kernels>(from, ENG_KERNELS_KIND, device_),
               fmt::format("plugin {}, device {}", from.description.id, device_), kernels_);
}

const eng_kernel& Kernels::find(const Call& call) const {
  const auto used = registry_.loaded_providers(ENG_KERNELS_KIND);
  const auto is_used = [&](const Candidate* one) {
    return std::any_of(used.begin(), used.end(), [&](const auto& u) { return u.first == one; });
  };
  for (auto it = kernels_.find(call.op->id);; it = kernels_.find(call.op->id)) {
    if (it != kernels_.end()) return it->second;
    std::vector<const Candidate*> left = registry_.providers(ENG_KERNELS_KIND, device_);
    std::erase_if(left, [&](const Candidate* one) { return std::count(loaded_.begin(), loaded_.end(), one); });
    std::stable_partition(left.begin(), left.end(), is_used);
    if (left.empty())
      throw Error(Exit::environment, fmt::format("device {} has no kernel for {}", device_, call.op->id));
    load(*left[0]);
  }
}

uint64_t Kernels::workspace(const Call& call) const {
  return kernel_workspace(find(call), call, info_.parallel, "device " + device_);
}

CallArgs::CallArgs(const Call& call, uint32_t parallel) {
  for (const Attr& a : call.attrs.list) attrs_.push_back({a.key.c_str(), a.i, a.f});
  call_ = {sizeof(eng_call),
           call.parallel ? call.parallel : parallel,
           static_cast<uint32_t>(call.in.size()),
           static_cast<uint32_t>(call.out.size()),
           call.in.data(),
           call.out.data(),
           attrs_.data(),
           static_cast<uint32_t>(attrs_.size()),
           0};
}

Device::Device(Registry& registry, const std::string& name, const Section& section)
    : name_(name), table_(registry.table<eng_device>(ENG_DEVICE_KIND, name)) {
  Options options(section);
  Sink sink;
  sink.check(table_.create(options.get(), &self_, sink.get()), Exit::environment, "[device] " + name);
}

Device::~Device() {
  table_.destroy(self_);
}

void* Device::alloc(uint64_t bytes) {
  void* out = nullptr;
  Sink sink;
  sink.check(table_.alloc(self_, bytes, &out, sink.get()), Exit::device_memory,
             fmt::format("device {}, {} for the arena", name_, format_bytes(static_cast<double>(bytes))));
  if (!out || reinterpret_cast<uintptr_t>(out) % 4096) {
    if (out) free(out, bytes);
    throw Error(Exit::environment, fmt::format("device {}: its alloc gave {}", name_,
                                               out ? "memory that is not aligned to 4096" : "NULL"));
  }
  return out;
}

void Device::upload(void* to, const void* from, uint64_t bytes) {
  Sink sink;
  sink.check(table_.upload(self_, to, from, bytes, sink.get()), Exit::environment,
             [this] { return "device " + name_ + ", upload"; });
}

void Device::download(void* to, const void* from, uint64_t bytes) {
  Sink sink;
  sink.check(table_.download(self_, to, from, bytes, sink.get()), Exit::environment,
             [this] { return "device " + name_ + ", download"; });
}

void Device::sync() {
  Sink sink;
  sink.check(table_.sync(self_, nullptr, sink.get()), Exit::environment,
             [this] { return "device " + name_ + ", sync"; });
}

}  // namespace eng
