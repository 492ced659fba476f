/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's kernels of a standard op for device cpu: eng.add/1 of f64, which the device's own plugin does not have.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/kernel.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.engine.test.f64'\n"
    "name = 'f64'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'sums in f64'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cpu'\n"
    "summary = 'eng.add/1 of f64'\n")

struct add {
  size_t n;
  const double *a, *b;
  double* out;
};

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  static const char why[] = "sums f64 alone";
  if (!call->device || !(call->device->flags & ENG_DEVICE_HOST_MEMORY)) return ENG_INTERNAL;
  if (call->in[0].dtype != ENG_F64) {
    if (error) error->set(error, ENG_UNSUPPORTED, why, sizeof why - 1);
    return ENG_UNSUPPORTED;
  }
  *bytes = 0;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  uint32_t k;
  struct add* made = calloc(1, sizeof *made);
  (void)device, (void)error;
  if (!made) return ENG_NO_MEMORY;
  made->n = 1;
  for (k = 0; k < call->in[0].ndim; ++k) made->n *= (size_t)call->in[0].dims[k];
  *state = made;
  return ENG_OK;
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  struct add* made = malloc(sizeof *made);
  (void)n, (void)scratch, (void)error;
  if (!made) return ENG_NO_MEMORY;
  *made = *(const struct add*)state;
  made->a = args[0]->data, made->b = args[1]->data, made->out = args[2]->data;
  *record = made;
  return ENG_OK;
}

static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  const struct add* a = record;
  size_t k;
  (void)exec, (void)error;
  for (k = 0; k < a->n; ++k) a->out[k] = a->a[k] + a->b[k];
  return ENG_OK;
}

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  static const eng_kernel add = {.struct_size = sizeof(eng_kernel),
                                 .op = ENG_OP_ADD,
                                 .workspace = workspace,
                                 .prepare = prepare,
                                 .bind = bind,
                                 .launch = launch,
                                 .drop_record = free,
                                 .drop_state = free};
  static const eng_kernel* const list[] = {&add};
  static const eng_kernels kernels = {.struct_size = sizeof(eng_kernels), .count = 1, .kernels = list};
  return strcmp(kind, ENG_KERNELS_KIND) || strcmp(name, "cpu") ? NULL : &kernels;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
