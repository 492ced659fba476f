/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule: the learning rate of every update, as one formula of the update's number. It sees neither time nor
 * losses, so a run that was stopped and resumed has the rates of one that was not. Here: a straight warm-up, then a
 * power of what is left of the run.
 *
 * With P = peak, W = warmup_steps, S = steps of the run, M = P * final_share:
 *   k < W         P k / W
 *   W <= k <= S   M + (P - M) ((S - k) / (S - W))^power
 *   k > S         M
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "engine/schedule.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.my_thing'\n"
    "name = 'my_thing'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a schedule'\n"
    "[[provides]]\n"
    "kind = 'eng.schedule/1'\n"
    "name = 'my_thing'\n"
    "summary = 'warm-up, then a power of what is left of the run'\n"
    "[provides.options]\n"
    "warmup_steps = { type = 'int', default = 0, min = 0, max = 1e9, help = 'updates until the full learning rate' }\n"
    "power = { type = 'float', default = 2.0, above = 0, max = 100, help = '1 is a straight line' }\n"
    "final_share = { type = 'float', default = 0.0, min = 0, max = 1, help = 'the last rate, as a part of the peak' "
    "}\n")

typedef struct schedule {
  double peak, last, power;
  uint64_t warmup, steps;
} schedule;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error) {
  schedule made, *kept;
  int64_t warmup = 0;
  double power = 0, share = 0;
  eng_status s = options->get_int(options, "warmup_steps", &warmup, error);
  if (s == ENG_OK) s = options->get_float(options, "power", &power, error);
  if (s == ENG_OK) s = options->get_float(options, "final_share", &share, error);
  if (s != ENG_OK) return s;
  /* This checks what the description cannot say. */
  if (warmup > run->steps)
    return fail(error, ENG_INVALID, "warmup_steps is more than train.steps: lower it, or train longer");
  made.peak = run->peak, made.last = run->peak * share, made.power = power;
  made.warmup = (uint64_t)warmup, made.steps = (uint64_t)run->steps;
  kept = malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status rate(void* self, uint64_t k, double* out, eng_error* error) {
  const schedule* me = self;
  (void)error;
  if (k < me->warmup) {
    *out = me->peak * ((double)k / (double)me->warmup);
  } else if (k >= me->steps) { /* a run that is made longer asks beyond its last step too */
    *out = me->last;
  } else {
    const double left = (double)(me->steps - k) / (double)(me->steps - me->warmup);
    *out = me->last + (me->peak - me->last) * pow(left, me->power);
  }
  return ENG_OK;
}

static const eng_schedule table = {
    .struct_size = sizeof(eng_schedule), .create = create, .destroy = destroy, .rate = rate};

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_SCHEDULE_KIND) && !strcmp(name, "my_thing") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
