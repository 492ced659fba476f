/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms") in C99, with an op of its own. Per element:
 *   g = grad * scalars[CLIP]
 *   p = p - lr * (sign(beta1 m + (1 - beta1) g) + weight_decay p)
 *   m = beta2 m + (1 - beta2) g
 * Every update has the size of the rate, so the rate is about a tenth of AdamW's, and the decay ten times as strong. */
#include <stdlib.h>
#include <string.h>

#include "engine/op.h"
#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"

#define LION \
  "org.example.lion.lion/1" /* in: p, grad, m (n), scalars; out: p, m, in place. attrs: beta1, beta2, weight_decay */

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.lion'\n"
    "name = 'Lion'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an optimizer with one moment'\n"
    "[[provides]]\n"
    "kind = '" ENG_OPTIMIZER_DRAFT
    "'\n"
    "name = 'lion'\n"
    "summary = 'steps by the sign of the momentum (Chen et al. 2023)'\n"
    "[provides.options]\n"
    "beta1 = { type = 'float', default = 0.9, min = 0, max = 1, help = 'the share of the momentum in the step' }\n"
    "beta2 = { type = 'float', default = 0.99, min = 0, max = 0.999999, help = 'what is kept of the momentum' }\n"
    "weight_decay = { type = 'float', default = 0.0, min = 0, per_group = true, help = 'not for norms and biases' }\n"
    "[[provides]]\n"
    "kind = '" ENG_OPS_DRAFT
    "'\n"
    "name = 'lion'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cpu'\n")

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

/* ---- the optimizer ---- */

typedef struct lion {
  double beta1, beta2;
} lion;

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  lion* made = malloc(sizeof *made);
  eng_status s;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  s = options->get_float(options, "beta1", &made->beta1, error);
  if (s == ENG_OK) s = options->get_float(options, "beta2", &made->beta2, error);
  if (s == ENG_OK)
    *self = made;
  else
    free(made);
  return s;
}

static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is no room for a state");
  out[0].name = "momentum", out[0].dtype = ENG_F32;
  *n = 1;
  return ENG_OK;
}

static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)k, (void)out, (void)cap, (void)error;
  *n = 0; /* the learning rate is enough */
  return ENG_OK;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const lion* me = self;
  eng_attr attrs[3] = {{"beta1", 0, 0}, {"beta2", 0, 0}, {"weight_decay", 0, 0}};
  eng_id in[4], out[2];
  eng_status s = ENG_OK;
  attrs[0].f = me->beta1, attrs[1].f = me->beta2;
  if (run->n_ranges > 0 && !(run->flags & ENG_PARAM_NO_DECAY)) {
    const eng_options* own = run->ranges[0].parameter->options;
    s = own->get_float(own, "weight_decay", &attrs[2].f, error);
  }
  if (s != ENG_OK) return s;
  in[0] = run->master, in[1] = run->grad, in[2] = run->states[0], in[3] = run->scalars;
  out[0] = run->master, out[1] = run->states[0];
  return b->api->emit(b, LION, in, 4, out, 2, attrs, 3, error);
}

static const eng_optimizer optimizer = {sizeof(eng_optimizer), 1, create, free, states, scalars, update};

/* ---- its op ---- */

static eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  uint32_t k;
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there are two outputs");
  for (k = 0; k < 3; ++k)
    if (call->in[k].dtype != ENG_F32 || call->in[k].dims[0] != call->in[0].dims[0])
      return fail(error, ENG_UNSUPPORTED, "lion keeps masters and momentum in f32: take precision fp32, bf16 or fp16");
  out[0] = call->in[0], out[1] = call->in[2];
  *n = 2;
  return ENG_OK;
}

static const eng_in_place pairs[] = {{0, 0, 1, 0}, {1, 2, 1, 0}};
static const eng_op op = {.struct_size = sizeof(eng_op),
                          .id = LION,
                          .min_in = 4,
                          .max_in = 4,
                          .infer = infer,
                          .in_place = pairs,
                          .n_in_place = 2};
static const eng_op* const op_list[] = {&op};
static const eng_ops ops = {sizeof(eng_ops), 1, op_list};

/* ---- its kernel ---- */

typedef struct use {
  int64_t n;
  float beta1, beta2, rest1, rest2, decay, *at[6]; /* rest: 1 - beta, rounded once */
} use;

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  (void)call, (void)error;
  *bytes = 0;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** state, eng_error* error) {
  use* made = calloc(1, sizeof *made);
  (void)device;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->n = call->in[0].dims[0];
  made->beta1 = (float)call->attrs[0].f, made->rest1 = (float)(1 - call->attrs[0].f);
  made->beta2 = (float)call->attrs[1].f, made->rest2 = (float)(1 - call->attrs[1].f);
  made->decay = (float)call->attrs[2].f;
  *state = made;
  return ENG_OK;
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  use* made = malloc(sizeof *made);
  uint32_t k;
  (void)scratch;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *made = *(const use*)state;
  for (k = 0; k < n && k < 6; ++k) made->at[k] = (float*)(void*)((char*)args[k]->data + args[k]->byte_offset);
  *record = made;
  return ENG_OK;
}

static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  const use* u = record;
  const float *g = u->at[1], *numbers = u->at[3], clip = numbers[ENG_S_CLIP], rate = numbers[ENG_S_LR];
  float *p = u->at[4], *m = u->at[5]; /* the outputs, which are the inputs 0 and 2 */
  int64_t i;
  (void)exec, (void)error;
  if (numbers[ENG_S_OK] == 0) return ENG_OK; /* an update that does not count */
  for (i = 0; i < u->n; ++i) {
    const float scaled = g[i] * clip, ahead = u->beta1 * m[i] + u->rest1 * scaled;
    const float sign = (float)((ahead > 0) - (ahead < 0));
    p[i] = p[i] - rate * (sign + u->decay * p[i]);
    m[i] = u->beta2 * m[i] + u->rest2 * scaled;
  }
  return ENG_OK;
}

static const eng_kernel kernel = {sizeof(eng_kernel), 0, LION, workspace, prepare, bind, launch, free, free};
static const eng_kernel* const kernel_list[] = {&kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 1, kernel_list};

/* ---- the plugin ---- */

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
  if (!strcmp(kind, ENG_OPTIMIZER_KIND)) return &optimizer;
  if (!strcmp(kind, ENG_OPS_KIND)) return &ops;
  return !strcmp(kind, ENG_KERNELS_KIND) ? &kernels : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
