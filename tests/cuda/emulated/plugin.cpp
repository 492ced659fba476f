// SPDX-License-Identifier: Apache-2.0
// The device "cuda" in memory of the host, without queues: its kernels are those of plugins/cuda, one fiber for each
// CUDA thread. Of use to tests only.
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/plugin.h"
#include "plugins/common/cuda/glue.hpp"
#include "plugins/common/kernel.hpp"
#include "plugins/cuda/kernels/library.hpp"
#include "plugins/cuda/kernels/list.hpp"

namespace cuda {

namespace {

struct Copy {
  static constexpr const char* op = ENG_OP_COPY;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  uint64_t bytes;
  explicit Copy(const Call& c)
      : bytes(static_cast<uint64_t>(elements(c.out[0])) * common::dtype_size(c.out[0].dtype)) {}
  void run(const Args& a, cudaStream_t) const {
    if (bytes) std::memcpy(a.out<char>(0), a.in<char>(0), bytes);
  }
};

// A library of products, for calls whose device has scratch for it: settings[0] bytes. It adds in order, in f32.
class InOrder final : public library::Algorithm {
 public:
  explicit InOrder(const library::Product& p) : p_(p) {}
  bool takes(const library::Operands&) const override { return true; }
  void run(const library::Operands& o, void*, void*) const override {
    const int64_t a_stride = p_.a_stride ? p_.a_stride : p_.ta ? p_.m : p_.k;
    const int64_t c_stride = p_.c_stride ? p_.c_stride : p_.n;
    for (int64_t m = 0; m < p_.m; ++m)
      for (int64_t n = 0; n < p_.n; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < p_.k; ++k)
          sum += read(o.a, p_.type, p_.ta ? k * a_stride + m : m * a_stride + k) *
                 read(o.b, p_.type, p_.tb ? n * p_.k + k : k * p_.n + n);
        if (o.bias) sum += read(o.bias, p_.type, n);
        if (o.acc) sum += read(o.acc, p_.result, m * c_stride + n);
        by_type(p_.result, [&]<class T>(T) { from_f32(sum, static_cast<T*>(o.c)[m * c_stride + n]); });
      }
  }

 private:
  library::Product p_;
  static float read(const void* from, int32_t type, int64_t i) {
    float out = 0;
    by_type(type, [&]<class T>(T) { out = to_f32(static_cast<const T*>(from)[i]); });
    return out;
  }
};
const library::Table in_order = {
    [](const Call& c, const library::Product&) { return c.device.settings[0]; },
    [](void*, const library::Product& p, uint64_t scratch) -> std::shared_ptr<const library::Algorithm> {
      return scratch ? std::make_shared<InOrder>(p) : nullptr;
    }};

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'tests.emulated'\n"
    "name = 'emulated cuda'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'Kernels of the cuda device on the CPU, for tests'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'emulated'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "summary = 'emulated'\n")

eng_status describe_device(const eng_options*, eng_device_info* info, eng_error*) {
  info->flags = ENG_DEVICE_HOST_MEMORY;
  info->parallel = info->parallel_beside = 1;
  info->dl_device_type = kDLCPU;
  std::strcpy(info->name, "emulated CUDA threads (CPU)");
  return ENG_OK;
}
char object;
eng_status create(const eng_options*, uint32_t, void** self, eng_error*) {
  *self = &object;
  return ENG_OK;
}
uint64_t whole_pages(uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096 + 4096;
}
eng_status alloc(void*, int32_t, uint64_t bytes, void** out, eng_error* sink) {
  *out = bytes > UINT64_MAX / 2 ? nullptr : std::aligned_alloc(4096, whole_pages(bytes));
  if (!*out) return common::report(sink, ENG_NO_MEMORY, "out of memory");
  std::memset(*out, 0, bytes);
  return ENG_OK;
}
eng_status copy(void*, void* dst, const void* src, uint64_t bytes, eng_error*) {
  if (bytes) std::memcpy(dst, src, bytes);
  return ENG_OK;
}

const eng_device& device_table() {
  static const eng_device table = [] {
    eng_device t{};
    t.struct_size = sizeof t, t.minor = ENG_ABI_MINOR;
    t.describe = describe_device, t.create = create, t.destroy = [](void*) {};
    t.alloc = alloc, t.free = [](void*, int32_t, void* arena, uint64_t) { std::free(arena); };
    t.upload = copy, t.download = copy;
    t.sync = [](void*, void*, eng_error*) -> eng_status { return ENG_OK; };
    return t;
  }();
  return table;
}

List collected;
eng_kernels table;

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  collected = kernels(), library::table = &in_order;
  collected.push_back(&kernel<Copy>);
  table = {sizeof table, static_cast<uint32_t>(collected.size()), collected.data()};
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "cuda") != 0) return nullptr;
  if (std::strcmp(kind, ENG_DEVICE_KIND) == 0) return &device_table();
  return std::strcmp(kind, ENG_KERNELS_KIND) == 0 ? &table : nullptr;
}
const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace
}  // namespace cuda

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &cuda::plugin;
}
