// SPDX-License-Identifier: Apache-2.0
// Runs one op on one device plugin: tensors with owned memory, workspace and prepare and bind and launch, outputs back.
// Every run also checks that the kernel stays inside its tensors and its workspace and leaves its inputs as they were.
// A device with discrete memory is given copies of all of it, guards included.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "engine/plugin.h"
#include "tests/kernels/kernel_tensor.hpp"

namespace kernels_test {

// An error that a plugin reported.
struct Failure : std::runtime_error {
  eng_status status;
  Failure(eng_status s, const std::string& text) : std::runtime_error(text), status(s) {}
};

// An error sink that throws what it was told.
class Sink {
 public:
  eng_error* get() { return &error_; }
  void check(eng_status status) {
    if (status != ENG_OK) throw Failure(status, text_.empty() ? "no error text" : text_);
  }

 private:
  std::string text_;
  eng_error error_{sizeof(eng_error), 0, this, [](eng_error* self, eng_status, const char* text, uint64_t length) {
                     static_cast<Sink*>(self->data)->text_.assign(text, length);
                   }};
};

// `file` is absolute or relative to the folder of built plugins, "cpu/reference.eng.so": ENG_TEST_PLUGINS where the
// build was moved.
inline std::string built_plugin(const std::string& file) {
  const char* const moved = std::getenv("ENG_TEST_PLUGINS");
  return file[0] == '/' ? file : std::string(moved ? moved : ENGINE_PLUGIN_DIR) + "/" + file;
}

class Device {
 public:
  using Outputs = std::vector<Tensor>;
  using InPlace = std::vector<std::pair<size_t, size_t>>;  // (output, the input whose memory it takes)

  // ENG_TEST_OPTIONS = "key=value key=value" gives further options of [device].
  Device(const std::string& file, const std::string& name, int64_t threads = 0, const std::string& isa = "auto") {
    const char* const more = std::getenv("ENG_TEST_OPTIONS");
    std::istringstream words(more ? more : "");
    for (std::string word; words >> word;) given_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    given_["threads"] = std::to_string(threads), given_["isa"] = isa;
    const std::string path = built_plugin(file);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) throw std::runtime_error(dlerror());
    const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
    if (!query) throw std::runtime_error(path + " exports no eng_plugin_query_1");
    const eng_plugin* plugin = query(ENG_ABI_MINOR);
    static std::map<const eng_plugin*, bool> started;  // a plugin is started once in a process
    static const eng_host host = {sizeof(eng_host), ENG_ABI_MINOR, nullptr,
                                  [](const eng_host*, int32_t, const char*, uint64_t) {},
                                  [](const eng_host*, const char*) -> const void* { return nullptr; }};
    Sink sink;
    if (!started[plugin]) sink.check(plugin->start(&host, sink.get()));
    started[plugin] = true;
    device = static_cast<const eng_device*>(plugin->get_interface(ENG_DEVICE_KIND, name.c_str()));
    kernels = static_cast<const eng_kernels*>(plugin->get_interface(ENG_KERNELS_KIND, name.c_str()));
    if (!device || !kernels) throw std::runtime_error(path + " provides no device and kernels named " + name);
    options_.data = &given_;
    options_.get_bool = [](const eng_options*, const char*, int32_t*, eng_error*) -> eng_status {
      return ENG_NOT_FOUND;
    };
    options_.get_int = [](const eng_options* o, const char* key, int64_t* out, eng_error*) -> eng_status {
      const std::string* const value = given(o, key);
      if (value) *out = std::stoll(*value);
      return value ? ENG_OK : ENG_NOT_FOUND;
    };
    options_.get_string = [](const eng_options* o, const char* key, const char** out, eng_error*) -> eng_status {
      const std::string* const value = given(o, key);
      if (value) *out = value->c_str();
      return value ? ENG_OK : ENG_NOT_FOUND;
    };
    options_.is_set = [](const eng_options*, const char*) -> int32_t { return 1; };
    info.struct_size = sizeof(info);
    sink.check(device->describe(&options_, &info, sink.get()));
    sink.check(device->create(&options_, 0, &self_, sink.get()));
  }
  ~Device() {
    if (!device) return;
    if (room_) device->free(self_, ENG_MEMORY_DEVICE, room_, room_bytes_);
    if (queue_) device->queue_destroy(self_, queue_);
    device->destroy(self_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const eng_kernel* find(const std::string& op) const {
    for (uint32_t k = 0; k < kernels->count; ++k)
      if (op == kernels->kernels[k]->op) return kernels->kernels[k];
    return nullptr;
  }
  void* self() const { return self_; }

  // Runs the op on fresh outputs, which hold NaN (or -1) wherever the kernel writes nothing.
  Outputs run(const std::string& op, const std::vector<Tensor>& in, const std::vector<eng_desc>& out,
              const std::vector<eng_attr>& attrs = {}, const InPlace& in_place = {}) const {
    Outputs result;
    for (const eng_desc& d : out) result.emplace_back(d, 0xFF);
    for (const auto& [o, i] : in_place) result[o] = in[i];
    run_on(op, in, result, attrs, in_place);
    return result;
  }

  // Runs the op on outputs that hold something already. An output in place shares its memory with the input.
  void run_on(const std::string& op, const std::vector<Tensor>& given, Outputs& out,
              const std::vector<eng_attr>& attrs = {}, const InPlace& in_place = {}) const {
    const eng_kernel* kernel = find(op);
    if (!kernel) throw Failure(ENG_NOT_FOUND, "no kernel for " + op);
    std::vector<Tensor> in = given;
    std::vector<eng_desc> in_descs, out_descs;
    std::vector<DLTensor> views(in.size() + out.size());
    std::vector<DLTensor*> args;
    for (size_t k = 0; k < in.size(); ++k) {
      in_descs.push_back(in[k].d);
      args.push_back(in[k].d.dtype ? view(in[k], views[k]) : nullptr);
    }
    for (size_t k = 0; k < out.size(); ++k) {
      out_descs.push_back(out[k].d);
      args.push_back(out[k].d.dtype ? view(out[k], views[in.size() + k]) : nullptr);
    }
    for (const auto& [o, i] : in_place) args[i]->data = args[in.size() + o]->data;

    eng_call call{};
    call.struct_size = sizeof(call), call.parallel = info.parallel, call.device = &info;
    call.n_in = uint32_t(in.size()), call.n_out = uint32_t(out.size()), call.n_attrs = uint32_t(attrs.size());
    call.in = in_descs.data(), call.out = out_descs.data(), call.attrs = attrs.data();

    Sink sink;
    uint64_t bytes = 0;
    sink.check(kernel->workspace(&call, &bytes, sink.get()));
    Memory workspace(bytes, 0xFF);
    void* scratch = workspace.data();
    std::vector<std::pair<Memory*, DLTensor*>> apart;  // without a tensor: the workspace
    if (!(info.flags & ENG_DEVICE_HOST_MEMORY)) {
      for (size_t k = 0; k < args.size(); ++k)
        if (args[k]) apart.emplace_back(&(k < in.size() ? in[k] : out[k - in.size()]).memory, args[k]);
      for (const auto& [o, i] : in_place)
        std::erase_if(apart, [&, tensor = args[i]](const auto& one) { return one.second == tensor; });
      apart.emplace_back(&workspace, nullptr);
      scratch = send(apart, sink);
      for (const auto& [o, i] : in_place) args[i]->data = args[in.size() + o]->data;
    }
    void* state = nullptr;
    sink.check(kernel->prepare(self_, &call, &state, sink.get()));
    const std::unique_ptr<void, void (*)(void*)> drop_state(state, kernel->drop_state);
    void* record = nullptr;
    sink.check(kernel->bind(state, args.data(), uint32_t(args.size()), bytes ? scratch : nullptr, &record, sink.get()));
    const std::unique_ptr<void, void (*)(void*)> drop_record(record, kernel->drop_record);
    if ((info.flags & ENG_DEVICE_ASYNC) && !queue_) sink.check(device->queue_create(self_, &queue_, sink.get()));
    const eng_exec exec = {sizeof(eng_exec), 0, queue_};
    sink.check(kernel->launch(record, &exec, sink.get()));
    sink.check(device->sync(self_, nullptr, sink.get()));
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < timed; ++k) sink.check(kernel->launch(record, &exec, sink.get()));
    if (timed) sink.check(device->sync(self_, nullptr, sink.get()));
    if (timed) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / timed;
    const char* from = static_cast<const char*>(room_);
    for (const auto& [memory, tensor] : apart) {
      const uint64_t skip = tensor ? 0 : memory->size();  // of the workspace, its guard
      sink.check(device->download(self_, memory->data() + skip, from + skip, memory->with_guard() - skip, sink.get()));
      from += steps(memory->with_guard());
    }

    if (!workspace.intact()) throw std::logic_error(op + " wrote behind its workspace");
    for (const Tensor& t : out)
      if (!t.memory.intact()) throw std::logic_error(op + " wrote behind an output");
    for (size_t k = 0; k < in.size(); ++k)
      if (!in[k].memory.intact() || !in[k].same_bits(given[k])) throw std::logic_error(op + " wrote to an input");
  }

  const eng_device* device = nullptr;
  const eng_kernels* kernels = nullptr;
  eng_device_info info{};
  int timed = 0;               // launches more of each run, whose time is measured
  mutable double seconds = 0;  // of one of these, the last time

 private:
  static DLTensor* view(Tensor& t, DLTensor& v) {
    const uint8_t code = t.d.dtype <= ENG_F64 || t.d.dtype == ENG_F16 ? kDLFloat
                         : t.d.dtype == ENG_BF16                      ? kDLBfloat
                         : t.d.dtype == ENG_U8                        ? kDLUInt
                                                                      : kDLInt;
    v = {t.memory.data(),
         {kDLCPU, 0},
         int32_t(t.d.ndim),
         {code, uint8_t(8 * dtype_size(t.d.dtype)), 1},
         t.d.dims,
         nullptr,
         0};
    return &v;
  }

  static uint64_t steps(uint64_t bytes) { return (bytes + 255) / 256 * 256; }
  // Copies all into memory of the device, where the tensors then are. Returns the address of the last one.
  char* send(const std::vector<std::pair<Memory*, DLTensor*>>& all, Sink& sink) const {
    uint64_t bytes = 0;
    for (const auto& one : all) bytes += steps(one.first->with_guard());
    if (bytes > room_bytes_) {
      if (room_) device->free(self_, ENG_MEMORY_DEVICE, room_, room_bytes_);
      room_ = nullptr, room_bytes_ = 0;
      sink.check(device->alloc(self_, ENG_MEMORY_DEVICE, bytes, &room_, sink.get()));
      room_bytes_ = bytes;
    }
    char *to = static_cast<char*>(room_), *last = to;
    for (const auto& [memory, tensor] : all) {
      last = to;
      sink.check(device->upload(self_, to, memory->data(), memory->with_guard(), sink.get()));
      if (tensor)
        tensor->data = to, tensor->device = {static_cast<DLDeviceType>(info.dl_device_type), info.dl_device_id};
      to += steps(memory->with_guard());
    }
    return last;
  }

  using Options = std::map<std::string, std::string>;
  static const std::string* given(const eng_options* o, const char* key) {
    const Options& all = *static_cast<const Options*>(o->data);
    const auto found = all.find(key);
    return found == all.end() ? nullptr : &found->second;
  }
  Options given_;
  eng_options options_{};
  void* self_ = nullptr;
  // Memory and queue of a device that has its own; kept between runs.
  mutable void *room_ = nullptr, *queue_ = nullptr;
  mutable uint64_t room_bytes_ = 0;
};

inline const Device& reference() {
  static const Device device("cpu/reference.eng.so", "reference");
  return device;
}

}  // namespace kernels_test
