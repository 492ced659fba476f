/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier that is storage: states live in a file between their uses. The file has no name, so it is gone when the run
 * ends, however it ends. A tier that is memory sets ENG_TIER_HOST_MEMORY, gives an address in `alloc`, and has neither
 * `read` nor `write`.
 */
#define _GNU_SOURCE /* mkostemp */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/plugin.h"
#include "engine/tier.h"

#define FOLDER "/var/tmp" /* on a disk; /tmp may be memory */

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.my_thing'\n"
    "name = 'my_thing'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a tier'\n"
    "[[provides]]\n"
    "kind = '" ENG_TIER_DRAFT
    "'\n"
    "name = 'my_thing'\n"
    "summary = 'a file below " FOLDER "'\n")

/* "cannot WHAT a file in FOLDER: why". A user must be able to tell what is full or broken. */
static eng_status fail(eng_error* error, const char* what, int number) {
  char text[256];
  const int n = snprintf(text, sizeof text, "cannot %s a file in " FOLDER ": %s", what, strerror(number));
  if (error) error->set(error, ENG_UNAVAILABLE, text, n < 0 ? 0 : (uint64_t)n);
  return ENG_UNAVAILABLE;
}

/* Both bandwidths are unknown, so the plan's estimate of a step has its own. */
static eng_status describe_tier(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->flags = 0; /* storage */
  return ENG_OK;
}

/* An object has nothing of its own here; `self` only has to be something. */
static char the_tier;

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank, (void)error;
  *self = &the_tier;
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

/* An arena of exactly these bytes, as the plan says. All of the space is reserved now: a step must not run out of it.
 */
static eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* error) {
  char name[] = FOLDER "/my_thing-XXXXXX";
  int* file = malloc(sizeof *file);
  int failed;
  (void)self;
  if (!file) return fail(error, "make", ENOMEM);
  *file = mkostemp(name, O_CLOEXEC);
  failed = *file < 0 ? errno : 0;
  if (failed) {
    free(file);
    return fail(error, "make", failed);
  }
  unlink(name);
  failed = bytes ? posix_fallocate(*file, 0, (off_t)bytes) : 0; /* zeros */
  if (failed) {
    close(*file);
    free(file);
    return fail(error, "reserve space for", failed);
  }
  *out = file;
  return ENG_OK;
}

static void release(void* self, void* arena, uint64_t bytes) {
  (void)self, (void)bytes;
  if (!arena) return;
  close(*(int*)arena);
  free(arena);
}

/* One read and one write may be at work at the same time: neither has a position that the other would move. */
static eng_status read_bytes(void* self, void* arena, uint64_t offset, void* to, uint64_t bytes, eng_error* error) {
  uint64_t done = 0;
  (void)self;
  while (done < bytes) {
    const ssize_t n = pread(*(int*)arena, (char*)to + done, bytes - done, (off_t)(offset + done));
    if (n == 0 || (n < 0 && errno != EINTR)) return fail(error, "read", n ? errno : EIO);
    if (n > 0) done += (uint64_t)n;
  }
  return ENG_OK;
}

static eng_status write_bytes(void* self, void* arena, uint64_t offset, const void* from, uint64_t bytes,
                              eng_error* error) {
  uint64_t done = 0;
  (void)self;
  while (done < bytes) {
    const ssize_t n = pwrite(*(int*)arena, (const char*)from + done, bytes - done, (off_t)(offset + done));
    if (n < 0 && errno != EINTR) return fail(error, "write", errno);
    if (n > 0) done += (uint64_t)n;
  }
  return ENG_OK;
}

/* host_bytes is NULL: an arena takes no memory worth counting. */
static const eng_tier table = {.struct_size = sizeof(eng_tier),
                               .minor = ENG_ABI_MINOR,
                               .describe = describe_tier,
                               .create = create,
                               .destroy = destroy,
                               .alloc = alloc,
                               .free = release,
                               .read = read_bytes,
                               .write = write_bytes};

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_TIER_KIND) && !strcmp(name, "my_thing") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
