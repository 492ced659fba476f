/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier that is memory of the host, with what the first draft of eng.tier/1 had and nothing else: binaries_test.py
 * compiles it with the header of that draft. */
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "engine/tier.h"

ENG_DESCRIPTION(
    "[plugin]\nid = 'org.example.memory'\nname = 'Memory'\nversion = '1.0.0'\nlicense = 'Apache-2.0'\n"
    "[[provides]]\nkind = '" ENG_TIER_DRAFT "'\nname = 'memory'\n")

static eng_status describe_tier(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->flags = ENG_TIER_HOST_MEMORY;
  return ENG_OK;
}

static char the_tier;

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank, (void)error;
  *self = &the_tier;
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

static eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* error) {
  (void)self, (void)error;
  if (posix_memalign(out, 4096, bytes + 4096)) return ENG_NO_MEMORY;
  memset(*out, 0, bytes);
  return ENG_OK;
}

static void release(void* self, void* arena, uint64_t bytes) {
  (void)self, (void)bytes;
  free(arena);
}

static const eng_tier table = {.struct_size = sizeof(eng_tier),
                               .minor = ENG_ABI_MINOR,
                               .describe = describe_tier,
                               .create = create,
                               .destroy = destroy,
                               .alloc = alloc,
                               .free = release};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_TIER_KIND) && !strcmp(name, "memory") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
