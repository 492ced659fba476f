/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiers of a third party, in C99 against engine/ alone. "shelf" is memory between two pages that nobody may touch.
 * "drawer" is storage: what lies in it is not what was written, so only its read brings it back. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/plugin.h"
#include "engine/tier.h"

enum { page = 4096 };

static uint64_t whole(uint64_t bytes) {
  return (bytes + page - 1) / page * page + (bytes ? 0 : page);
}

static eng_status describe(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->flags = ENG_TIER_HOST_MEMORY;
  return ENG_OK;
}

/* The number of arenas that were not given back. */
typedef struct shelf {
  int arenas;
} shelf;

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  static const char text[] = "out of memory";
  shelf* made = calloc(1, sizeof *made);
  (void)options, (void)local_rank;
  if (!made) {
    if (error && error->set) error->set(error, ENG_NO_MEMORY, text, sizeof text - 1);
    return ENG_NO_MEMORY;
  }
  *self = made;
  return ENG_OK;
}

static void destroy(void* self) {
  if (((shelf*)self)->arenas) abort(); /* the contract: all of them have been given back */
  free(self);
}

static eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* error) {
  static const char text[] = "no such memory";
  const uint64_t size = whole(bytes);
  char* all = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(all + page, size, PROT_READ | PROT_WRITE)) {
    if (all != MAP_FAILED) munmap(all, size + 2 * page);
    if (error && error->set) error->set(error, ENG_NO_MEMORY, text, sizeof text - 1);
    return ENG_NO_MEMORY;
  }
  memset(all + page, 0, size);
  ++((shelf*)self)->arenas;
  *out = all + page;
  return ENG_OK;
}

static void release(void* self, void* arena, uint64_t bytes) {
  if (!arena) return;
  munmap((char*)arena - page, whole(bytes) + 2 * page);
  --((shelf*)self)->arenas;
}

static const eng_tier tier = {.struct_size = sizeof(eng_tier),
                              .minor = ENG_ABI_MINOR,
                              .describe = describe,
                              .create = create,
                              .destroy = destroy,
                              .alloc = alloc,
                              .free = release};

/* Bytes that were never written are zero, as alloc left them. */
enum { key = 0x5a };

static eng_status describe_drawer(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->read_bandwidth = 1e9;
  out->write_bandwidth = 5e8;
  return ENG_OK;
}

/* Its bytes, and which of them were written. */
typedef struct drawer {
  unsigned char *bytes, *written;
} drawer;

static eng_status open_drawer(void* self, uint64_t bytes, void** out, eng_error* error) {
  static const char text[] = "no such memory";
  drawer* made = calloc(1, sizeof *made);
  if (made) made->bytes = calloc(1, bytes + 1), made->written = calloc(1, bytes + 1);
  if (!made || !made->bytes || !made->written) {
    if (made) free(made->bytes), free(made->written);
    free(made);
    if (error && error->set) error->set(error, ENG_NO_MEMORY, text, sizeof text - 1);
    return ENG_NO_MEMORY;
  }
  ++((shelf*)self)->arenas;
  *out = made;
  return ENG_OK;
}

static void close_drawer(void* self, void* arena, uint64_t bytes) {
  drawer* all = arena;
  (void)bytes;
  if (!all) return;
  free(all->bytes), free(all->written);
  free(all);
  --((shelf*)self)->arenas;
}

static eng_status take(void* self, void* arena, uint64_t offset, void* to, uint64_t bytes, eng_error* error) {
  const drawer* all = arena;
  (void)self, (void)error;
  for (uint64_t k = 0; k < bytes; ++k)
    ((unsigned char*)to)[k] = (unsigned char)(all->written[offset + k] ? all->bytes[offset + k] ^ key : 0);
  return ENG_OK;
}

static eng_status put(void* self, void* arena, uint64_t offset, const void* from, uint64_t bytes, eng_error* error) {
  drawer* all = arena;
  (void)self, (void)error;
  for (uint64_t k = 0; k < bytes; ++k) all->bytes[offset + k] = (unsigned char)(((const unsigned char*)from)[k] ^ key);
  memset(all->written + offset, 1, bytes);
  return ENG_OK;
}

static const eng_tier storage = {.struct_size = sizeof(eng_tier),
                                 .minor = ENG_ABI_MINOR,
                                 .describe = describe_drawer,
                                 .create = create,
                                 .destroy = destroy,
                                 .alloc = open_drawer,
                                 .free = close_drawer,
                                 .read = take,
                                 .write = put};

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.shelf'\n"
    "name = 'Shelf'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a tier between guard pages'\n"
    "[[provides]]\n"
    "kind = '" ENG_TIER_DRAFT
    "'\n"
    "name = 'shelf'\n"
    "summary = 'host memory between two pages that nobody may touch'\n"
    "fit = { order = 5, discrete = true }\n"
    "[[provides]]\n"
    "kind = '" ENG_TIER_DRAFT
    "'\n"
    "name = 'drawer'\n"
    "summary = 'storage that keeps bytes in another form'\n")

static const char* description(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_TIER_KIND) != 0) return NULL;
  return strcmp(name, "shelf") == 0 ? &tier : strcmp(name, "drawer") == 0 ? &storage : NULL;
}

static const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                                  .abi_minor = ENG_ABI_MINOR,
                                  .draft_id = ENG_ABI_DRAFT_ID,
                                  .describe = description,
                                  .start = start,
                                  .stop = stop,
                                  .get_interface = get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
