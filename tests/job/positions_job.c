/* SPDX-License-Identifier: Apache-2.0
 *
 * A job without programs, states and values: it compares the losses of single positions with those of windows, and the
 * fields of windows with each other. */
#include "engine/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.positions'\nname = 'Positions'\nversion = '1.0.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = '" ENG_JOB_DRAFT "'\nname = 'positions'\nsummary = 'losses of single positions'\n")
/* clang-format on */

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  (void)options, (void)error;
  *self = NULL;
  return ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status describe_job(void* self, eng_job_info* out, eng_error* error) {
  (void)self, (void)error;
  out->micro_batch = 2;
  out->flags = ENG_JOB_POSITIONS;
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
  (void)self, (void)b, (void)run, (void)error;
  return ENG_INTERNAL; /* there is no program */
}
static eng_status host_bytes(void* self, const eng_parameter* const* parameters, uint32_t n_parameters,
                             const eng_job_site* const* sites, uint32_t n_sites, uint64_t* bytes, eng_error* error) {
  (void)self, (void)parameters, (void)n_parameters, (void)sites, (void)n_sites, (void)error;
  *bytes = 1 << 20;
  return ENG_OK;
}

enum { WINDOWS = 5 }; /* the last micro-batch is not whole */

typedef struct seen {
  double* losses; /* (WINDOWS, T) */
  int32_t *tokens, *labels;
  int agree, counted, follow, silent;
} seen;

static eng_status look(seen* s, eng_job_host* h, uint64_t length, eng_error* error) {
  double sums[WINDOWS] = {0}, made[WINDOWS] = {0};
  int64_t labels[WINDOWS] = {0}, counts[WINDOWS] = {0};
  eng_status status = h->api->position_losses(h, ENG_JOB_HELD, 0, WINDOWS, s->losses, error);
  for (uint64_t w = 0; status == ENG_OK && w < WINDOWS; ++w) {
    status = h->api->field(h, ENG_JOB_HELD, w, ENG_FIELD_TOKENS, s->tokens, error);
    if (status == ENG_OK) status = h->api->field(h, ENG_JOB_HELD, w, ENG_FIELD_LABELS, s->labels, error);
    for (uint64_t t = 0; status == ENG_OK && t < length; ++t) {
      const double loss = s->losses[w * length + t];
      const int counted = s->labels[t] != ENG_IGNORE_LABEL;
      if (counted ? !(loss > 0) : loss != 0) s->silent = 0;
      if (counted && t + 1 < length && s->labels[t] != s->tokens[t + 1]) s->follow = 0;
      made[w] += loss, counts[w] += counted;
    }
  }
  /* A micro-batch has two windows; the last one is that of four. */
  if (status == ENG_OK) status = h->api->losses(h, ENG_JOB_HELD, 0, 2, 0, sums, labels, error);
  for (int m = 0; status == ENG_OK && m < 2; ++m) {
    const double off = (made[2 * m] + made[2 * m + 1]) / sums[m] - 1;
    if (!(off < 1e-5 && off > -1e-5)) s->agree = 0;
    if (counts[2 * m] + counts[2 * m + 1] != labels[m]) s->counted = 0;
  }
  return status;
}

static eng_status run(void* self, eng_job_host* h, eng_error* error) {
  seen s = {NULL, NULL, NULL, 1, 1, 1, 1};
  int64_t length = 0;
  uint64_t windows = 0;
  char text[100];
  eng_status status = h->api->windows(h, ENG_JOB_HELD, &windows, &length, error);
  (void)self;
  if (status != ENG_OK) return status;
  s.losses = malloc(WINDOWS * (size_t)length * sizeof *s.losses);
  s.tokens = malloc((size_t)length * sizeof *s.tokens), s.labels = malloc((size_t)length * sizeof *s.labels);
  status = s.losses && s.tokens && s.labels ? look(&s, h, (uint64_t)length, error) : ENG_NO_MEMORY;
  free(s.losses), free(s.tokens), free(s.labels);
  if (status != ENG_OK) return status;
  snprintf(text, sizeof text, "agree %d\ncounted %d\nfollow %d\nsilent %d\n", s.agree, s.counted, s.follow, s.silent);
  return h->api->file(h, "positions.txt", text, strlen(text), error);
}

static const eng_job table = {.struct_size = sizeof(eng_job),
                              .create = create,
                              .destroy = destroy,
                              .describe = describe_job,
                              .states = states,
                              .values = values,
                              .emit = emit,
                              .host_bytes = host_bytes,
                              .run = run};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_JOB_KIND) && !strcmp(name, "positions") ? &table : NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
