/* SPDX-License-Identifier: Apache-2.0
 *
 * An observer that asks for texts between steps, and gives their ids as its line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/observer.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.writer'\nname = 'Writer'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = '" ENG_OBSERVER_DRAFT "'\nname = 'writer'\nsummary = 'asks for texts'\n"
  "[provides.options]\n"
  "at = { type = 'int', default = 1, help = 'the step after which it asks' }\n"
  "prompt = { type = 'string', default = '', help = 'the beginning of the text; empty: the ids 5 6 7' }\n"
  "tokens = { type = 'int', default = 8, help = 'new tokens' }\n"
  "temperature = { type = 'float', default = 0.0, help = 'of the draws' }\n"
  "seed = { type = 'int', default = 1, help = 'of the draws' }\n"
  "ignore = { type = 'bool', default = false, help = 'go on if there is no text' }\n")
/* clang-format on */

typedef struct writer {
  int64_t at, tokens, seed;
  double temperature;
  int32_t ignore;
  char prompt[64], line[900];
} writer;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error && error->set) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  const char* prompt = NULL;
  writer* made = calloc(1, sizeof(*made));
  eng_status s;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  s = options->get_int(options, "at", &made->at, error);
  if (s == ENG_OK) s = options->get_int(options, "tokens", &made->tokens, error);
  if (s == ENG_OK) s = options->get_int(options, "seed", &made->seed, error);
  if (s == ENG_OK) s = options->get_float(options, "temperature", &made->temperature, error);
  if (s == ENG_OK) s = options->get_bool(options, "ignore", &made->ignore, error);
  if (s == ENG_OK) s = options->get_string(options, "prompt", &prompt, error);
  if (s == ENG_OK) snprintf(made->prompt, sizeof made->prompt, "%s", prompt);
  if (s == ENG_OK)
    *self = made;
  else
    free(made);
  return s;
}

static void destroy(void* self) {
  free(self);
}

static eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t cap, uint32_t* n,
                          eng_error* error) {
  (void)self, (void)site, (void)out, (void)cap, (void)error;
  *n = 0;
  return ENG_OK;
}

static eng_status observe(void* self, eng_build* b, const eng_site* site, eng_id* out, uint32_t n, eng_error* error) {
  (void)self, (void)b, (void)site, (void)out, (void)n;
  return fail(error, ENG_INTERNAL, "it has no results");
}

static eng_status after_step(void* self, const eng_step_done* step, eng_step_reply* reply, eng_error* error) {
  static const int32_t ids[] = {5, 6, 7};
  writer* w = self;
  eng_sample asked = {sizeof asked, 0, NULL, NULL, w->tokens, w->temperature, (uint64_t)w->seed};
  eng_sampled first = {0}, text = {0};
  int32_t before[64];
  size_t used = 0;
  uint32_t k, n;
  eng_status s;
  if (step->step != w->at) return ENG_OK;
  first.struct_size = text.struct_size = sizeof text;
  if (w->prompt[0])
    asked.prompt = w->prompt;
  else
    asked.ids = ids, asked.n_ids = 3;
  s = step->sample(step, &asked, &first, error);
  if (s != ENG_OK) return w->ignore ? ENG_OK : s;
  n = first.n;
  if (n > 64) return fail(error, ENG_INTERNAL, "more tokens than it asked for");
  memcpy(before, first.ids, n * sizeof *before);
  /* Each call is a text of its own: the second one is the first again. */
  s = step->sample(step, &asked, &text, error);
  if (s != ENG_OK) return s;
  if (text.n != n || memcmp(before, text.ids, n * sizeof *before) != 0)
    return fail(error, ENG_INTERNAL, "two equal requests give two texts");
  if (!text.text || text.text[text.bytes]) return fail(error, ENG_INTERNAL, "the text does not end where it says");
  for (k = 0; k < n; ++k)
    used += (size_t)snprintf(w->line + used, sizeof w->line - used, "%s%d", k ? " " : "", (int)text.ids[k]);
  reply->text = w->line;
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
  return !strcmp(kind, ENG_OBSERVER_KIND) && !strcmp(name, "writer") ? &table : NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
