/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin with one bad habit, which the environment variable HABIT names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/plugin.h"
#include "engine/tier.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.habits'\n"
    "name = 'Habits'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_TIER_DRAFT
    "'\n"
    "name = 'habits'\n")

static int has(const char* habit) {
  const char* mine = getenv("HABIT");
  return mine && strcmp(mine, habit) == 0;
}

static eng_status describe_tier(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->flags = ENG_TIER_HOST_MEMORY;
  return ENG_OK;
}
static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  (void)options, (void)local_rank, (void)error;
  *self = NULL;
  return has("refuses") ? ENG_INTERNAL : ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status alloc(void* self, uint64_t bytes, void** out, eng_error* error) {
  (void)self, (void)error;
  *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (has("dies in alloc")) abort();
  return ENG_OK;
}
static void release(void* self, void* arena, uint64_t bytes) {
  (void)self;
  munmap(arena, bytes);
}
static const eng_tier tier = {.struct_size = sizeof(eng_tier),
                              .minor = ENG_ABI_MINOR,
                              .describe = describe_tier,
                              .create = create,
                              .destroy = destroy,
                              .alloc = alloc,
                              .free = release};

static const char* describe(void) {
  return eng_description;
}

static void* wait_for_ever(void* nothing) {
  (void)nothing;
  for (;;) pause();
  return NULL;
}

static eng_status start(const eng_host* host, eng_error* error) {
  pthread_t thread;
  (void)host, (void)error;
  if (has("thread")) pthread_create(&thread, NULL, wait_for_ever, NULL);
  if (has("prints")) puts("hello");
  if (has("environment")) setenv("LD_PRELOAD", "mine.so", 1);
  if (has("folder") && chdir("/") != 0) return ENG_INTERNAL;
  if (has("file")) (void)open("/dev/null", O_RDONLY);
  if (has("locale")) setlocale(LC_ALL, "C.UTF-8");
  if (has("signal")) signal(SIGTERM, SIG_IGN);
  if (has("exits")) exit(0);
  if (has("dies")) raise(SIGSEGV);
  if (has("hangs")) wait_for_ever(NULL);
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  (void)name;
  return has("any kind") || strcmp(kind, ENG_TIER_KIND) == 0 ? &tier : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
