/* SPDX-License-Identifier: Apache-2.0
 *
 * A device `cuda` for plans only: the gradient of attention takes `scratch` bytes if [device] attention_workspace
 * allows them, else none. It leaves all other ops to `reference`. */
#include <string.h>

#include "engine/device.h"
#include "engine/kernel.h"
#include "engine/ops_attention.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.engine.test.scratch'\n"
    "name = 'scratch'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'cuda'\n"
    "fallback = 'reference'\n"
    "[provides.options]\n"
    "attention_workspace = { type = 'bytes', choices = ['free'], min = 0, resume = 'note' }\n"
    "attention = { type = 'string', default = 'auto', choices = ['auto', 'cudnn'] }\n"
    "scratch = { type = 'bytes', default = 0 }\n"
    "total = { type = 'bytes', default = 0, help = 'its memory' }\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cuda'\n")

enum { cap, scratch }; /* places in eng_device_info.settings */

static eng_status describe_device(const eng_options* options, eng_device_info* out, eng_error* error) {
  int64_t n[3] = {0, 0, 0};
  const char* const keys[3] = {"attention_workspace", "scratch", "total"};
  for (int k = 0; k < 3; ++k) {
    const eng_status status = options->get_int(options, keys[k], &n[k], error);
    if (status != ENG_OK) return status; /* also if the word was left in its place */
  }
  out->flags = ENG_DEVICE_HOST_MEMORY, out->parallel = 1;
  out->settings[cap] = (uint64_t)n[0], out->settings[scratch] = (uint64_t)n[1], out->total_bytes = (uint64_t)n[2];
  return ENG_OK;
}

/* Never called: nothing runs. */
static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank, (void)self, (void)error;
  return ENG_INTERNAL;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status alloc(void* self, int32_t memory, uint64_t bytes, void** out, eng_error* error) {
  (void)self, (void)memory, (void)bytes, (void)out, (void)error;
  return ENG_INTERNAL;
}
static void release(void* self, int32_t memory, void* arena, uint64_t bytes) {
  (void)self, (void)memory, (void)arena, (void)bytes;
}
static eng_status copy(void* self, void* to, const void* from, uint64_t bytes, eng_error* error) {
  (void)self, (void)to, (void)from, (void)bytes, (void)error;
  return ENG_INTERNAL;
}
static eng_status sync(void* self, void* queue, eng_error* error) {
  (void)self, (void)queue, (void)error;
  return ENG_INTERNAL;
}
static eng_status bound(const eng_call* call, uint64_t* bytes, eng_error* error) {
  const uint64_t* settings = call->device->settings;
  (void)error;
  *bytes = settings[scratch] <= settings[cap] ? settings[scratch] : 0;
  return ENG_OK;
}
static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  (void)device, (void)call, (void)state, (void)error;
  return ENG_INTERNAL;
}
static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* workspace, void** record,
                       eng_error* error) {
  (void)state, (void)args, (void)n, (void)workspace, (void)record, (void)error;
  return ENG_INTERNAL;
}
static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  (void)record, (void)exec, (void)error;
  return ENG_INTERNAL;
}

static const eng_device device = {.struct_size = sizeof(eng_device),
                                  .describe = describe_device,
                                  .create = create,
                                  .destroy = destroy,
                                  .alloc = alloc,
                                  .free = release,
                                  .upload = copy,
                                  .download = copy,
                                  .sync = sync};
static const eng_kernel gradient = {
    sizeof(eng_kernel), 0, ENG_OP_ATTENTION_GRAD, bound, prepare, bind, launch, destroy, destroy};
static const eng_kernel* const list[] = {&gradient};
static const eng_kernels kernels = {sizeof(eng_kernels), 1, list};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* engine, eng_error* error) {
  (void)engine, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  (void)name;
  if (strcmp(kind, ENG_DEVICE_KIND) == 0) return &device;
  return strcmp(kind, ENG_KERNELS_KIND) == 0 ? &kernels : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
