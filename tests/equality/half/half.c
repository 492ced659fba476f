/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision policies of a third party, compiled against abi/ only. Weights and the sums of gradients over ranks have 16
 * bits. Masters, accumulated gradients and activations are f32. */
#include <string.h>

#include "engine/ops.h"
#include "engine/plugin.h"
#include "engine/policy.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.half'\n"
  "name = 'Half'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'weights and sums over ranks in 16 bits, all else in f32'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_PRECISION_DRAFT "'\n"
  "name = 'half-bf16'\n"
  "summary = 'bf16'\n"
  "fit = { order = 5, effect = 'weights in bf16' }\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_PRECISION_DRAFT "'\n"
  "name = 'half-f16'\n"
  "summary = 'f16'\n")
/* clang-format on */

static int32_t bf16 = ENG_BF16, f16 = ENG_F16; /* the objects: `self` points to one of them */

static eng_status create_bf16(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  (void)options, (void)b, (void)error;
  *self = &bf16;
  return ENG_OK;
}
static eng_status create_f16(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  (void)options, (void)b, (void)error;
  *self = &f16;
  return ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}

static eng_status place(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  const int keep = unit && (unit->flags & ENG_PARAM_FP32);
  (void)error;
  if ((role == ENG_ROLE_WEIGHT || role == ENG_ROLE_PARTIAL) && !keep) io->dtype = *(const int32_t*)self;
  return ENG_OK;
}

static eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  eng_id out = m->dst;
  eng_attr dtype = {"dtype", 0, 0};
  (void)self;
  dtype.i = m->to->dtype;
  return b->api->emit(b, ENG_OP_CAST, &m->src, 1, &out, 1, &dtype, 1, error);
}

static const eng_axis in_bf16 = {sizeof(eng_axis), 0, create_bf16, destroy, place, move, NULL, NULL,
                                 ENG_AXIS_CASTS,   0, NULL,        NULL};
static const eng_axis in_f16 = {sizeof(eng_axis), 0, create_f16, destroy, place, move, NULL, NULL,
                                ENG_AXIS_CASTS,   0, NULL,       NULL};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_PRECISION_KIND) != 0) return NULL;
  return strcmp(name, "half-bf16") == 0 ? &in_bf16 : strcmp(name, "half-f16") == 0 ? &in_f16 : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t version) {
  (void)version;
  return &plugin;
}
