/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that computes the gradient of the first windows so many times, and nothing else: what the probes of the
 * curvature job are measured against (curvature_cost.py).
 */
#include <stdlib.h>

#include "engine/job.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'eng.benchmark.gradients'\n"
    "name = 'Gradients'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'gradients, for a measurement'\n"
    "[[provides]]\n"
    "kind = '" ENG_JOB_DRAFT
    "'\n"
    "name = 'gradients'\n"
    "summary = 'gradients'\n"
    "[provides.options]\n"
    "times = { type = 'int', default = 64, min = 1, max = 1000000, help = 'how often' }\n"
    "windows = { type = 'int', default = 8, min = 1, max = 1000000, help = 'of a gradient' }\n"
    "micro_batch = { type = 'int', default = 1, min = 1, max = 1000000, help = 'windows computed together' }\n")

typedef struct options {
  int64_t times, windows, micro_batch;
} options;

static eng_status create(const eng_options* given, void** self, eng_error* error) {
  options* o = calloc(1, sizeof *o);
  if (!o) return ENG_NO_MEMORY;
  eng_status s = given->get_int(given, "times", &o->times, error);
  if (!s) s = given->get_int(given, "windows", &o->windows, error);
  if (!s) s = given->get_int(given, "micro_batch", &o->micro_batch, error);
  if (s)
    free(o);
  else
    *self = o;
  return s;
}
static void destroy(void* self) {
  free(self);
}
static eng_status describe(void* self, eng_job_info* out, eng_error* error) {
  const options* o = self;
  (void)error;
  out->windows = (uint32_t)o->windows, out->micro_batch = (uint32_t)o->micro_batch;
  return ENG_OK;
}
static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)out, (void)cap, (void)error;
  *n = 0;
  return ENG_OK;
}
static eng_status values(void* self, eng_job_value* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)out, (void)cap, (void)error;
  *n = 0;
  return ENG_OK;
}
static eng_status emit(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  (void)self, (void)run;
  return b->api->status(b, error);
}
static eng_status run(void* self, eng_job_host* host, eng_error* error) {
  const options* o = self;
  eng_status s = ENG_OK;
  for (int64_t k = 0; k < o->times && !s; ++k) s = host->api->gradient(host, ENG_JOB_TRAIN, 0, NULL, error);
  return s;
}

static eng_status host_bytes(void* self, const eng_parameter* const* parameters, uint32_t n_parameters,
                             const eng_job_site* const* sites, uint32_t n_sites, uint64_t* bytes, eng_error* error) {
  (void)self, (void)parameters, (void)n_parameters, (void)sites, (void)n_sites, (void)bytes, (void)error;
  return ENG_OK;
}

static const eng_job job = {sizeof job, 0,    create,     destroy, describe, states,
                            values,     emit, host_bytes, run,     NULL,     NULL};

static const char* description(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  (void)kind, (void)name;
  return &job;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, description, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
