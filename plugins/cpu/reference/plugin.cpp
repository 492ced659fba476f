// SPDX-License-Identifier: Apache-2.0
// The device "reference": host memory, one thread, plain loops. It is what faster devices are compared with.
#include "engine/plugin.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "reference.hpp"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.reference'\n"
    "name = 'reference'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'every op as a plain loop on one thread; slow, the truth that other devices are compared with'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'reference'\n"
    "summary = 'host memory, one thread'\n"
    "[provides.options.threads]\n"
    "type = 'int'\n"
    "default = 0\n"
    "min = 0\n"
    "help = 'as for the device cpu, so that the two can be swapped; this one always uses a single thread'\n"
    "[provides.options.pad_vocabulary]\n"
    "type = 'int'\n"
    "default = 1\n"
    "min = 1\n"
    "max = 65536\n"
    "help = 'the weight of a head has a multiple of so many rows in memory; 1: its own'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'reference'\n"
    "summary = 'plain loops, f32 and f64'\n")

namespace reference {
namespace {

constexpr uint64_t page = 4096;
uint64_t whole_pages(uint64_t bytes) {
  return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

eng_status describe_device(const eng_options*, eng_device_info* out, eng_error* sink) {
  return common::guarded(
      sink, [] { return std::string("device reference"); },
      [&] {
        const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        out->flags = ENG_DEVICE_HOST_MEMORY;
        out->parallel = out->parallel_beside = 1;
        out->dl_device_type = kDLCPU;
        out->dl_device_id = 0;
        out->total_bytes = pages > 0 && size > 0 ? uint64_t(pages) * uint64_t(size) : 0;
        out->peak_f32 = 0;
        out->peak_bf16 = 0;
        std::strncpy(out->name, "reference, one thread", sizeof(out->name) - 1);
        out->name[sizeof(out->name) - 1] = '\0';
      });
}

// The device has no state; `self` only has to be something.
char the_device;

eng_status create(const eng_options*, uint32_t, void** self, eng_error*) {
  *self = &the_device;
  return ENG_OK;
}
void destroy(void*) {}

eng_status alloc(void*, int32_t, uint64_t bytes, void** out, eng_error* sink) {
  return common::guarded(
      sink, [] { return std::string("device reference"); },
      [&] {
        void* arena = bytes > UINT64_MAX - page ? nullptr : std::aligned_alloc(page, whole_pages(bytes));
        if (!arena) throw Error{ENG_NO_MEMORY, "the host has no " + std::to_string(bytes) + " bytes for an arena"};
        std::memset(arena, 0, whole_pages(bytes));
        *out = arena;
      });
}
void release(void*, int32_t, void* arena, uint64_t) {
  std::free(arena);
}

eng_status copy(void*, void* dst, const void* src, uint64_t bytes, eng_error*) {
  if (bytes) std::memcpy(dst, src, bytes);
  return ENG_OK;
}
eng_status sync(void*, void*, eng_error*) {
  return ENG_OK;
}

// Functions that are not named have their defaults: the device is synchronous.
const eng_device device = [] {
  eng_device d{};
  d.struct_size = sizeof(eng_device);
  d.minor = ENG_ABI_MINOR;
  d.describe = describe_device;
  d.create = create;
  d.destroy = destroy;
  d.alloc = alloc;
  d.free = release;
  d.upload = copy;
  d.download = copy;
  d.sync = sync;
  return d;
}();

const eng_kernels* all_kernels() {
  static const List list = [] {
    List l;
    for (auto add : {add_matrix, add_embedding, add_norm, add_layer_norm, add_rope, add_attention, add_sequence,
                     add_gated, add_activation, add_cast, add_dropout, add_cross_entropy, add_step, add_optimizer,
                     add_init, add_layout, add_packed, add_fp8, add_vocabulary})
      add(l);
    return l;
  }();
  static const eng_kernels table = {sizeof(eng_kernels), uint32_t(list.size()), list.data()};
  return &table;
}

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error* sink) {
  return common::guarded(
      sink, [] { return std::string("plugin reference"); }, [] { all_kernels(); });
}
void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "reference") != 0) return nullptr;
  if (std::strcmp(kind, ENG_DEVICE_KIND) == 0) return &device;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return all_kernels();  // made by start, which may fail; this cannot
  return nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace
}  // namespace reference

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &reference::plugin;
}
