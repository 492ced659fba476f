/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule for ABI 1.0: halves the rate every `half` updates. It logs a line when it is started. */
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "engine/schedule.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.frozen.halving'\nname = 'Halving'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = 'eng.schedule/1'\nname = 'halving'\nsummary = 'halves the rate again and again'\n"
  "[provides.options]\n"
  "half = { type = 'int', default = 2, min = 1, help = 'updates between two halvings' }\n")
/* clang-format on */

typedef struct halving {
  double peak;
  int64_t half, steps;
} halving;

static eng_status create(const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error) {
  static const char text[] = "half is more than train.steps: lower it";
  halving* made;
  int64_t half = 0;
  eng_status status = options->get_int(options, "half", &half, error);
  if (status != ENG_OK) return status;
  if (half > run->steps) {
    if (error) error->set(error, ENG_INVALID, text, sizeof(text) - 1);
    return ENG_INVALID;
  }
  made = malloc(sizeof(*made));
  if (!made) return ENG_NO_MEMORY;
  made->peak = run->peak, made->half = half, made->steps = run->steps;
  *self = made;
  return ENG_OK;
}
static void destroy(void* self) {
  free(self);
}
static eng_status rate(void* self, uint64_t k, double* out, eng_error* error) {
  const halving* s = self;
  uint64_t n = (k - 1) / (uint64_t)s->half;
  (void)error;
  for (*out = s->peak; n; --n) *out /= 2;
  return ENG_OK;
}
static const eng_schedule table = {
    .struct_size = sizeof(eng_schedule), .create = create, .destroy = destroy, .rate = rate};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)error;
  host->log(host, ENG_LOG_INFO, "halving is started", 18);
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_SCHEDULE_KIND) || strcmp(name, "halving") ? NULL : &table;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
