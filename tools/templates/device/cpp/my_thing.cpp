// SPDX-License-Identifier: Apache-2.0
// A device whose memory is the host's, with a kernel of one op. What it has no kernel for is left to the device `cpu`,
// so it trains every model from the first day on, and each kernel that is added here takes the place of the cpu's.
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "engine/plugin.h"

// `fallback` names the device to which ops are left. It has the same number of threads.
ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a device'

[[provides]]
kind = ')" ENG_DEVICE_DRAFT R"('
name = 'my_thing'
summary = 'memory of the host; sums of f32'
fallback = 'cpu'

[provides.options]
threads = { type = 'int', default = 0, min = 0, max = 1024, help = 'threads of what is left to the cpu; 0: all cores' }

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'my_thing'
summary = 'eng.add/1 of f32'
)")

namespace {

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

// ---- the device ----

// The facts that a plan needs. Nothing is opened here: it is also asked where there is no such device.
eng_status describe_device(const eng_options*, eng_device_info* out, eng_error*) {
  out->flags = ENG_DEVICE_HOST_MEMORY;  // and no queues: a launch returns when it is done
  out->parallel = 1;                    // threads of a kernel of this file: eng_call.parallel
  out->dl_device_type = kDLCPU;
  std::strcpy(out->name, "my_thing, in memory of the host");
  return ENG_OK;
}

struct Device {};  // a driver's handle, for example

eng_status create(const eng_options*, uint32_t, void** self, eng_error* error) {
  Device* made = new (std::nothrow) Device();
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Device*>(self);
}

constexpr uint64_t page = 4096;

// An arena: as many bytes as the plan says, all of them zero and there.
eng_status alloc(void*, int32_t, uint64_t bytes, void** out, eng_error* error) {
  const uint64_t size = bytes / page * page + page;
  void* arena = size > bytes ? std::aligned_alloc(page, size) : nullptr;
  if (!arena) return fail(error, ENG_NO_MEMORY, "the host has no memory for the arena");
  std::memset(arena, 0, size);
  *out = arena;
  return ENG_OK;
}

void release(void*, int32_t, void* arena, uint64_t) {
  std::free(arena);
}

// Both upload and download.
eng_status copy(void*, void* to, const void* from, uint64_t bytes, eng_error*) {
  if (bytes) std::memcpy(to, from, bytes);
  return ENG_OK;
}

eng_status sync(void*, void*, eng_error*) {
  return ENG_OK;
}

constexpr eng_device make_device() {
  eng_device table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.describe = describe_device;
  table.create = create;
  table.destroy = destroy;
  table.alloc = alloc;
  table.free = release;
  table.upload = copy;
  table.download = copy;
  table.sync = sync;
  return table;  // the rest is NULL: no queues, no graphs
}
constexpr eng_device device = make_device();

// ---- its kernels ----

struct Sum {
  int64_t n;
  const float *a, *b;
  float* y;
};

// Scratch, which this kernel needs none of. ENG_UNSUPPORTED leaves a call to other plugins' kernels, then to the
// fallback: here in all other types.
eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  if (call->in[0].dtype != ENG_F32 || call->in[1].dtype != ENG_F32)
    return fail(error, ENG_UNSUPPORTED, "my_thing adds f32 alone");
  *bytes = 0;
  return ENG_OK;
}

// Once for each distinct call. `self` is the Device above.
eng_status prepare(void* self, const eng_call* call, void** state, eng_error* error) {
  (void)self;
  Sum* made = new (std::nothrow) Sum{1, nullptr, nullptr, nullptr};
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  for (uint32_t k = 0; k < call->in[0].ndim; ++k) made->n *= call->in[0].dims[k];
  *state = made;
  return ENG_OK;
}

// Once for each action, when its addresses are known: inputs, then outputs.
eng_status bind(void* state, const DLTensor* const* args, uint32_t, void*, void** record, eng_error* error) {
  Sum* made = new (std::nothrow) Sum(*static_cast<const Sum*>(state));
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  const auto at = [&](uint32_t k) { return static_cast<char*>(args[k]->data) + args[k]->byte_offset; };
  made->a = reinterpret_cast<const float*>(at(0));
  made->b = reinterpret_cast<const float*>(at(1));
  made->y = reinterpret_cast<float*>(at(2));  // perhaps the memory of a or b
  *record = made;
  return ENG_OK;
}

// In every step: it computes, and allocates nothing.
eng_status launch(void* record, const eng_exec*, eng_error*) {
  const Sum& sum = *static_cast<const Sum*>(record);
  for (int64_t k = 0; k < sum.n; ++k) sum.y[k] = sum.a[k] + sum.b[k];
  return ENG_OK;
}

void drop(void* sum) {
  delete static_cast<Sum*>(sum);
}

constexpr eng_kernel add = {sizeof(eng_kernel), 0, ENG_OP_ADD, workspace, prepare, bind, launch, drop, drop};
const eng_kernel* const kernel_list[] = {&add};
constexpr eng_kernels kernels = {sizeof(eng_kernels), 1, kernel_list};

// ---- the plugin ----

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "my_thing") != 0) return nullptr;
  if (!std::strcmp(kind, ENG_DEVICE_KIND)) return &device;
  return !std::strcmp(kind, ENG_KERNELS_KIND) ? &kernels : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
