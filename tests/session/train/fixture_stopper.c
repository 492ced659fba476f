/* SPDX-License-Identifier: Apache-2.0
 *
 * An observer that acts between steps: it ends the run at a loss, and asks for a checkpoint, gives a line with a number
 * of its own, or fails after a step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/observer.h"
#include "engine/ops.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.stopper'\nname = 'Stopper'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = '" ENG_OBSERVER_DRAFT "'\nname = 'stopper'\nsummary = 'ends a run at a loss'\n"
  "[provides.options]\n"
  "at_most = { type = 'float', default = 0.0, help = 'the run ends after a step whose loss is not above this' }\n"
  "save = { type = 'int', default = 0, help = 'a step after which a checkpoint is saved' }\n"
  "tell = { type = 'int', default = 0, help = 'a step after which its learning rate is told' }\n"
  "fail = { type = 'int', default = 0, help = 'a step after which it fails' }\n")
/* clang-format on */

typedef struct stopper {
  double at_most;
  int64_t save, tell, fail;
  char text[80];
} stopper;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error && error->set) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  stopper* made = calloc(1, sizeof(*made));
  eng_status status;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  status = options->get_float(options, "at_most", &made->at_most, error);
  if (status == ENG_OK) status = options->get_int(options, "save", &made->save, error);
  if (status == ENG_OK) status = options->get_int(options, "tell", &made->tell, error);
  if (status == ENG_OK) status = options->get_int(options, "fail", &made->fail, error);
  if (status == ENG_OK)
    *self = made;
  else
    free(made);
  return status;
}

static void destroy(void* self) {
  free(self);
}

static eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t cap, uint32_t* n,
                          eng_error* error) {
  (void)self, (void)cap, (void)error;
  if (site->what != ENG_SITE_SCALARS) return ENG_OK;
  out[0].name = "rate", out[0].combine = ENG_COMBINE_LAST;
  *n = 1;
  return ENG_OK;
}

static eng_status observe(void* self, eng_build* b, const eng_site* site, eng_id* out, uint32_t n, eng_error* error) {
  (void)self, (void)n;
  return b->api->slice(b, site->value, ENG_S_LR, 1, &out[0], error);
}

static eng_status after_step(void* self, const eng_step_done* step, eng_step_reply* reply, eng_error* error) {
  stopper* s = self;
  if (step->step == s->fail) return fail(error, ENG_INTERNAL, "as it was asked to");
  if (step->n_observed != 1 || strcmp(step->observed[0].name, "rate") != 0 ||
      fabs(step->observed[0].value - step->learning_rate) > 1e-6 * step->learning_rate)
    return fail(error, ENG_INTERNAL, "its own result is not what it made");
  if (step->step == s->save) reply->flags |= ENG_STEP_SAVE;
  if (step->step == s->tell) {
    snprintf(s->text, sizeof(s->text), "rate %.3g after step %d of %d%s", step->observed[0].value, (int)step->step,
             (int)step->steps, isnan(step->eval_loss) ? "" : ", evaluated");
    reply->text = s->text;
  }
  if (step->loss <= s->at_most) reply->flags |= ENG_STEP_STOP, reply->text = "low enough";
  return ENG_OK;
}

static const eng_observer table = {.struct_size = sizeof(eng_observer),
                                   .create = create,
                                   .destroy = destroy,
                                   .results = results,
                                   .observe = observe,
                                   .after_step = after_step};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_OBSERVER_KIND) && !strcmp(name, "stopper") ? &table : NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
