/* SPDX-License-Identifier: Apache-2.0
 *
 * An observer (abi/engine/observer.h): the learning rate and the clipping factor of every step. docs/observers.md
 * explains it and tests it. */
#include "engine/observer.h"

#include <string.h>

#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.scalars'\n"
    "name = 'Scalars of a step'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_OBSERVER_DRAFT
    "'\n"
    "name = 'scalars'\n"
    "summary = 'learning rate and clipping factor'\n")

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  (void)options, (void)error;
  *self = NULL; /* it has no options and keeps nothing */
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

static eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t cap, uint32_t* n,
                          eng_error* error) {
  (void)self, (void)cap, (void)error;
  if (site->what != ENG_SITE_SCALARS) return ENG_OK; /* *n is 0 */
  out[0].name = "rate", out[0].combine = ENG_COMBINE_LAST;
  out[1].name = "clip", out[1].combine = ENG_COMBINE_LAST;
  *n = 2;
  return ENG_OK;
}

static eng_status observe(void* self, eng_build* b, const eng_site* site, eng_id* out, uint32_t n, eng_error* error) {
  (void)self, (void)n;
  b->api->slice(b, site->value, ENG_S_LR, 1, &out[0], error);
  b->api->slice(b, site->value, ENG_S_CLIP, 1, &out[1], error);
  return b->api->status(b, error);
}

static const eng_observer table = {
    .struct_size = sizeof(eng_observer), .create = create, .destroy = destroy, .results = results, .observe = observe};

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_OBSERVER_KIND) == 0 && strcmp(name, "scalars") == 0) return &table;
  return NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, .describe = describe, .start = start, .stop = stop,
                                  .get_interface = get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
