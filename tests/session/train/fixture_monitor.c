/* SPDX-License-Identifier: Apache-2.0
 *
 * Monitors in C, one for each way in which gauges are told, or not. */
#include <math.h>
#include <string.h>

#include "engine/monitor.h"
#include "engine/plugin.h"

#define MONITOR(name) "[[provides]]\nkind = '" ENG_MONITOR_DRAFT "'\nname = '" name "'\n"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.gauges'\nname = 'Gauges'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  MONITOR("whole") MONITOR("part") MONITOR("mute") MONITOR("odd") MONITOR("fails") MONITOR("absent"))
/* clang-format on */

static int opened, asked;

static eng_status open_one(uint32_t local_rank, void** self, eng_error* error) {
  (void)error;
  *self = &opened;
  opened += 1 + (int)local_rank;
  return ENG_OK;
}
static eng_status open_none(uint32_t local_rank, void** self, eng_error* error) {
  (void)local_rank, (void)self;
  if (error && error->set) error->set(error, ENG_UNAVAILABLE, "no driver", 9);
  return ENG_UNAVAILABLE;
}
static void close_one(void* self) {
  *(int*)self = 0;
}

static eng_status whole(void* self, eng_gauges* out, eng_error* error) {
  (void)error;
  out->used_bytes = 43000000000u + (uint64_t)++asked;
  out->utilisation = 0.96, out->celsius = 78, out->watts = *(int*)self; /* the local rank, and 1 */
  return ENG_OK;
}
static eng_status part(void* self, eng_gauges* out, eng_error* error) {
  (void)self, (void)error;
  out->celsius = 41;
  return ENG_OK;
}
static eng_status mute(void* self, eng_gauges* out, eng_error* error) {
  (void)self, (void)out, (void)error;
  return ENG_OK;
}
static eng_status odd(void* self, eng_gauges* out, eng_error* error) {
  (void)self, (void)error;
  out->utilisation = NAN, out->celsius = -INFINITY, out->watts = -3;
  return ENG_OK;
}
static eng_status fails(void* self, eng_gauges* out, eng_error* error) {
  (void)self;
  out->watts = 5;
  if (error && error->set) error->set(error, ENG_INTERNAL, "not today", 9);
  return ENG_INTERNAL;
}

static const struct {
  const char* name;
  eng_monitor table;
} all[] = {{"whole", {sizeof(eng_monitor), 0, open_one, close_one, whole}},
           {"part", {sizeof(eng_monitor), 0, open_one, close_one, part}},
           {"mute", {sizeof(eng_monitor), 0, open_one, close_one, mute}},
           {"odd", {sizeof(eng_monitor), 0, open_one, close_one, odd}},
           {"fails", {sizeof(eng_monitor), 0, open_one, close_one, fails}},
           {"absent", {sizeof(eng_monitor), 0, open_none, close_one, whole}}};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  size_t k;
  for (k = 0; !strcmp(kind, ENG_MONITOR_KIND) && k < sizeof(all) / sizeof(all[0]); ++k)
    if (!strcmp(name, all[k].name)) return &all[k].table;
  return NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
