/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule in C: halves the rate every `half` updates. `fault` breaks one rule at update 4. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "engine/schedule.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.halving'\nname = 'Halving'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = '" ENG_SCHEDULE_KIND "'\nname = 'halving'\nsummary = 'halves the rate again and again'\n"
  "[provides.options]\n"
  "half = { type = 'int', default = 2, min = 1, help = 'updates between two halvings' }\n"
  "fault = { type = 'string', default = 'none', resume = 'free', choices = ['none', 'nan', 'infinite', 'negative', 'high', 'error'] }\n"
  /* cannot be selected: the engine has a kind of this name */
  "[[provides]]\nkind = '" ENG_SCHEDULE_KIND "'\nname = 'cosine'\n")
/* clang-format on */

typedef struct halving {
  double peak;
  int64_t half;
  char fault[16];
} halving;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error && error->set) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error) {
  int64_t half = 0;
  const char* fault = NULL;
  halving* made;
  eng_status status = options->get_int(options, "half", &half, error);
  if (status == ENG_OK) status = options->get_string(options, "fault", &fault, error);
  if (status != ENG_OK) return status;
  if (half > run->steps) return fail(error, ENG_INVALID, "half is more than train.steps: lower it");
  made = malloc(sizeof(*made));
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->peak = run->peak, made->half = half;
  strncpy(made->fault, fault, sizeof(made->fault) - 1);
  made->fault[sizeof(made->fault) - 1] = 0;
  *self = made;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status rate(void* self, uint64_t k, double* out, eng_error* error) {
  const halving* s = self;
  *out = ldexp(s->peak, -(int)((k - 1) / (uint64_t)s->half));
  if (k != 4) return ENG_OK;
  if (!strcmp(s->fault, "nan")) *out = NAN;
  if (!strcmp(s->fault, "infinite")) *out = INFINITY;
  if (!strcmp(s->fault, "negative")) *out = -1e-9;
  if (!strcmp(s->fault, "high")) *out = s->peak * 1.001;
  if (!strcmp(s->fault, "error")) return fail(error, ENG_INTERNAL, "it has no rate today");
  return ENG_OK;
}

static const eng_schedule table = {sizeof(eng_schedule), 0, create, destroy, rate};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  (void)name;
  return strcmp(kind, ENG_SCHEDULE_KIND) ? NULL : &table;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
