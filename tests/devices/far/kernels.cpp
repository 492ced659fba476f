// SPDX-License-Identifier: Apache-2.0
// Kernels of other plugins as kernels of this device: their addresses are translated when they are bound, and a launch
// goes onto a queue.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/ops.h"
#include "far.hpp"

namespace far {
namespace {

constexpr size_t most = 160;
std::mutex loading;
std::vector<std::string> loaded;
std::vector<const eng_kernel*> inner;
const eng_device* found_device = nullptr;

struct State {
  const eng_kernel* kernel;
  Device* device;
  size_t n_in;
  void* inner;
};

// A kernel has no place for whose it is: slot K is a set of functions of its own.
template <size_t K>
struct Slot {
  static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* sink) {
    return inner[K]->workspace(call, bytes, sink);
  }
  static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* sink) {
    auto* self = static_cast<Device*>(device);
    auto made = std::make_unique<State>(State{inner[K], self, call->n_in, nullptr});
    const eng_status status = inner[K]->prepare(self->inner, call, &made->inner, sink);
    if (status == ENG_OK) *state = made.release();
    return status;
  }
  static void drop_state(void* state) {
    const std::unique_ptr<State> own(static_cast<State*>(state));
    if (own->inner) own->kernel->drop_state(own->inner);
  }
};

eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* workspace, void** record, eng_error* sink) {
  const State& s = *static_cast<State*>(state);
  return guarded(sink, [&] {
    const bool copies = std::strcmp(s.kernel->op, ENG_OP_COPY) == 0;
    std::vector<DLTensor> tensors(n);
    std::vector<const DLTensor*> list(n, nullptr);
    for (uint32_t k = 0; k < n; ++k) {
      if (!args[k]) continue;
      tensors[k] = *args[k];
      // Ops that are not copies work in the memory of the device.
      tensors[k].data =
          copies ? bytes_of(args[k]->data, size_of(*args[k])) : device_bytes_of(args[k]->data, size_of(*args[k]));
      tensors[k].device = {kDLCPU, 0};
      list[k] = &tensors[k];
    }
    auto made = std::make_unique<Record>();
    made->kernel = s.kernel, made->device = s.device, made->number = s.device->binds++;
    made->capturable = s.device->settings().uncapturable != s.kernel->op;
    if (workspace) workspace = device_bytes_of(workspace, 1);
    eng_error* const none = nullptr;
    const eng_status status = s.kernel->bind(s.inner, list.data(), n, workspace, &made->record, sink ? sink : none);
    if (status != ENG_OK) throw Error{status, std::string(s.kernel->op) + " cannot be bound"};
    made->fresh = fresh_bytes(list, s.n_in);
    *record = made.release();
  });
}

eng_status launch(void* record, const eng_exec* exec, eng_error* sink) {
  auto& r = *static_cast<Record*>(record);
  return guarded(sink,
                 [&] { r.device->launch(r, static_cast<Queue*>(exec->queue), (exec->flags & ENG_EXEC_SYNC) != 0); });
}

void drop_record(void* record) {
  const std::unique_ptr<Record> own(static_cast<Record*>(record));
  if (own->record) own->kernel->drop_record(own->record);
}

template <size_t... K>
std::array<eng_kernel, most> slots(std::index_sequence<K...>) {
  return {eng_kernel{sizeof(eng_kernel), 0, nullptr, Slot<K>::workspace, Slot<K>::prepare, bind, launch, drop_record,
                     Slot<K>::drop_state}...};
}

std::array<eng_kernel, most> all = slots(std::make_index_sequence<most>());
std::array<const eng_kernel*, most> list;
eng_kernels all_kernels = {sizeof(eng_kernels), 0, list.data()};

}  // namespace

const eng_plugin& open_plugin(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) throw Error{ENG_INVALID, dlerror()};
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
  if (!query) throw Error{ENG_INVALID, file + " is no plugin"};
  return *query(ENG_ABI_MINOR);
}

void load_kernels(const std::vector<std::string>& files, const std::string& of) {
  const std::lock_guard lock(loading);
  std::vector<std::string> names = files;
  names.push_back(of);
  if (loaded == names) return;
  if (!loaded.empty()) throw Error{ENG_PRECONDITION, "far has other kernels already in this process"};
  for (const std::string& file : files) {
    const eng_plugin& plugin = open_plugin(file);
    // The engine may use the same plugin, and has started it then.
    const auto kernels_now = [&] {
      return static_cast<const eng_kernels*>(plugin.get_interface(ENG_KERNELS_KIND, of.c_str()));
    };
    if (!kernels_now() || !kernels_now()->count) {
      static const eng_host host = {sizeof(eng_host), ENG_ABI_MINOR, nullptr,
                                    [](const eng_host*, int32_t, const char*, uint64_t) {},
                                    [](const eng_host*, const char*) -> const void* { return nullptr; }};
      if (plugin.start(&host, nullptr) != ENG_OK) throw Error{ENG_INVALID, file + " does not start"};
    }
    const eng_kernels* kernels = kernels_now();
    if (!kernels) throw Error{ENG_INVALID, file + " has no kernels for " + of};
    if (!found_device) found_device = static_cast<const eng_device*>(plugin.get_interface(ENG_DEVICE_KIND, of.c_str()));
    for (uint32_t k = 0; k < kernels->count; ++k) {
      const eng_kernel* one = kernels->kernels[k];
      if (std::any_of(inner.begin(), inner.end(), [&](const eng_kernel* i) { return !std::strcmp(i->op, one->op); }))
        continue;
      if (inner.size() == most) throw Error{ENG_INVALID, "too many kernels"};
      const size_t at = inner.size();
      inner.push_back(one);
      all[at].op = one->op, all[at].flags = one->flags, list[at] = &all[at];
    }
  }
  if (!found_device) throw Error{ENG_INVALID, "none of the plugins has the device " + of};
  all_kernels.count = static_cast<uint32_t>(inner.size());
  loaded = names;
}

const eng_kernels* kernels() {
  return &all_kernels;
}
const eng_device* inner_device() {
  return found_device;
}

}  // namespace far
