/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier, whose fault is that of whichever section has one. */
#define _POSIX_C_SOURCE 200809L
#include "hostile.h"

static char object;

static int stores(void) {
  return is("storage") || is("storage: endless rate") || is("storage: endless tables") || is("storage: no memory") ||
         is("fail tier.read") || is("fail tier.write");
}

static eng_status describe(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options;
  ENTER("tier.describe");
  out->flags = is("tier: not host memory") || stores() ? 0 : ENG_TIER_HOST_MEMORY;
  out->read_bandwidth = is("storage: endless rate") ? 1e308 * 10 : 1e9;
  return ENG_OK;
}

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank;
  ENTER("tier.create");
  *self = &object;
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

static eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* error) {
  void* memory = NULL;
  (void)self;
  ENTER("tier.alloc");
  if (is("tier: no memory") || is("storage: no memory")) return ENG_OK;
  if (posix_memalign(&memory, 4096, (size_t)bytes + 64) != 0) return ENG_NO_MEMORY;
  memset(memory, 0, (size_t)bytes + 64);
  *out = is("tier: crooked memory") ? (char*)memory + 64 : memory;
  return ENG_OK;
}

static void release(void* self, void* arena, uint64_t bytes) {
  (void)self, (void)bytes;
  free(is("tier: crooked memory") && arena ? (char*)arena - 64 : arena);
}

static eng_status host_bytes(const eng_options* options, uint64_t bytes, uint64_t* out, eng_error* error) {
  (void)options, (void)bytes, (void)error;
  *out = is("storage: endless tables") ? UINT64_MAX : 0;
  return ENG_OK;
}

static eng_status read_arena(void* self, void* arena, uint64_t offset, void* to, uint64_t bytes, eng_error* error) {
  (void)self;
  ENTER("tier.read");
  memcpy(to, (const char*)arena + offset, (size_t)bytes);
  return ENG_OK;
}

static eng_status write_arena(void* self, void* arena, uint64_t offset, const void* from, uint64_t bytes,
                              eng_error* error) {
  (void)self;
  ENTER("tier.write");
  memcpy((char*)arena + offset, from, (size_t)bytes);
  return ENG_OK;
}

const eng_tier hostile_tier = {.struct_size = sizeof(eng_tier),
                               .minor = ENG_ABI_MINOR,
                               .describe = describe,
                               .create = create,
                               .destroy = destroy,
                               .alloc = alloc,
                               .free = release,
                               .host_bytes = host_bytes,
                               .read = read_arena,
                               .write = write_arena};

/* The memory tier without functions of storage. */
const eng_tier hostile_memory = {.struct_size = sizeof(eng_tier),
                                 .minor = ENG_ABI_MINOR,
                                 .describe = describe,
                                 .create = create,
                                 .destroy = destroy,
                                 .alloc = alloc,
                                 .free = release};
