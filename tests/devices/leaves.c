/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that leave ops where they cannot: `ring` and `chain` to each other, `apart` although its memory is not the
 * host's. */
#include <string.h>

#include "engine/device.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.engine.test.leaves'\n"
    "name = 'leaves'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'ring'\n"
    "fallback = 'chain'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'chain'\n"
    "fallback = 'ring'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'apart'\n"
    "fallback = 'cpu'\n")

static eng_status in_host_memory(const eng_options* options, eng_device_info* out, eng_error* error) {
  (void)options, (void)error;
  out->flags = ENG_DEVICE_HOST_MEMORY, out->parallel = 1;
  return ENG_OK;
}
static eng_status in_own_memory(const eng_options* options, eng_device_info* out, eng_error* error) {
  (void)options, (void)error;
  out->parallel = 1;
  return ENG_OK;
}

/* Never called: no test creates one. */
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
  return ENG_OK;
}

#define DEVICE(describes)                                                                                             \
  {                                                                                                                   \
    .struct_size = sizeof(eng_device), .describe = (describes), .create = create, .destroy = destroy, .alloc = alloc, \
    .free = release, .upload = copy, .download = copy, .sync = sync                                                   \
  }
static const eng_device host = DEVICE(in_host_memory), own = DEVICE(in_own_memory);

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* engine, eng_error* error) {
  (void)engine, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_DEVICE_KIND) != 0) return NULL;
  return strcmp(name, "apart") == 0 ? &own : &host;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
