/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier, whose fault is that of whichever section has one. */
#define _POSIX_C_SOURCE 200809L
#include "hostile.h"

static char object;

static eng_status describe(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options;
  ENTER("tier.describe");
  out->flags = is("tier: not host memory") ? 0 : ENG_TIER_HOST_MEMORY;
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
  if (is("tier: no memory")) return ENG_OK;
  if (posix_memalign(&memory, 4096, (size_t)bytes + 64) != 0) return ENG_NO_MEMORY;
  memset(memory, 0, (size_t)bytes + 64);
  *out = is("tier: crooked memory") ? (char*)memory + 64 : memory;
  return ENG_OK;
}

static void release(void* self, void* arena, uint64_t bytes) {
  (void)self, (void)bytes;
  free(is("tier: crooked memory") && arena ? (char*)arena - 64 : arena);
}

const eng_tier hostile_tier = {.struct_size = sizeof(eng_tier),
                               .minor = ENG_ABI_MINOR,
                               .describe = describe,
                               .create = create,
                               .destroy = destroy,
                               .alloc = alloc,
                               .free = release};
