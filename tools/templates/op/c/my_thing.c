/* SPDX-License-Identifier: Apache-2.0
 *
 * An op of one's own with its gradient and kernels, and a small model that uses it.
 *   y = x / sqrt(1 + a x^2), elementwise (Carlile et al. 2017); dy/dx = (1 + a x^2)^(-3/2) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define ISRU "org.example.my_thing.isru/1"           /* in: x; out: y. attr: a f */
#define ISRU_GRAD "org.example.my_thing.isru_grad/1" /* in: dy, x, [dx so far]; out: dx, in its place. attr: a f */

/* One table of kernels serves two devices: `cpu` trains, `reference` computes in f64 for checks of gradients. */
ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.my_thing'\n"
    "name = 'my_thing'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an op with kernels, and a model that uses it'\n"
    "[[provides]]\n"
    "kind = '" ENG_OPS_DRAFT
    "'\n"
    "name = 'my_thing'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'cpu'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'reference'\n"
    "[[provides]]\n"
    "kind = '" ENG_MODEL_DRAFT
    "'\n"
    "name = 'my_thing'\n"
    "summary = 'two linear maps with the op between them'\n"
    "[provides.options]\n"
    "vocab_size = { type = 'int', default = 256, min = 1, max = 2147483647, help = 'token ids are below this' }\n"
    "hidden_size = { type = 'int', default = 64, min = 1, max = 65536, help = 'features of a position' }\n"
    "a = { type = 'float', default = 1.0, min = 0, help = 'how early the op levels off' }\n")

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

/* ---- the ops: what the planner must know ---- */

static eng_status infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  uint32_t k;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  for (k = 1; k < call->n_in; ++k)
    if (call->in[k].dtype != 0 && memcmp(&call->in[k], &call->in[0], sizeof(eng_desc)) != 0)
      return fail(error, ENG_INVALID, "all inputs must have the same type and shape");
  out[0] = call->in[0];
  *n_out = 1;
  return ENG_OK;
}

static double flops(const eng_call* call) {
  double n = 4;
  uint32_t k;
  for (k = 0; k < call->in[0].ndim; ++k) n *= (double)call->in[0].dims[k];
  return n;
}

/* The inputs that are passed to an op here are kept for the backward: x, and nothing else. */
static eng_status isru_gradient(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  if (api->wants(g, 0)) {
    uint32_t n = 0;
    const eng_attr* attrs = api->attrs(g, &n);
    eng_id in[3], dx = 0;
    in[0] = api->d_out(g, 0), in[1] = api->in(g, 0), in[2] = api->take(g, 0);
    api->emit(g, ISRU_GRAD, in, 3, &dx, 1, attrs, n, NULL);
    api->give(g, 0, dx);
  }
  return api->status(g, error);
}

/* Cheap: run again rather than kept. By position: also serves the generation of text. */
static const eng_op isru = {.struct_size = sizeof(eng_op),
                            .flags = ENG_OP_CHEAP | ENG_OP_BY_POSITION,
                            .id = ISRU,
                            .min_in = 1,
                            .max_in = 1,
                            .infer = infer,
                            .flops = flops,
                            .grad = isru_gradient};
static const eng_in_place onto_sum = {0, 2, 1, 0}; /* output 0 takes the memory of input 2, where there is one */
static const eng_op isru_grad = {.struct_size = sizeof(eng_op),
                                 .id = ISRU_GRAD,
                                 .min_in = 2,
                                 .max_in = 3,
                                 .infer = infer,
                                 .flops = flops,
                                 .in_place = &onto_sum,
                                 .n_in_place = 1};
static const eng_op* const op_list[] = {&isru, &isru_grad};
static const eng_ops ops = {sizeof(eng_ops), 2, op_list};

/* ---- the kernels: how they are computed on the host ---- */

typedef struct call {
  int64_t n;
  int32_t dtype;
  double a;
  void* at[4];
} call;

static eng_status workspace(const eng_call* use, uint64_t* bytes, eng_error* error) {
  if (use->in[0].dtype != ENG_F32 && use->in[0].dtype != ENG_F64)
    return fail(error, ENG_UNSUPPORTED, "these kernels compute in f32 and f64");
  *bytes = 0;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* use, void** state, eng_error* error) {
  call* made = calloc(1, sizeof *made);
  uint32_t k;
  (void)device;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->n = 1, made->dtype = use->in[0].dtype, made->a = 1;
  for (k = 0; k < use->in[0].ndim; ++k) made->n *= use->in[0].dims[k];
  for (k = use->n_attrs; k-- > 0;)
    if (!strcmp(use->attrs[k].key, "a")) made->a = use->attrs[k].f;
  *state = made;
  return ENG_OK;
}

static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  call* made = malloc(sizeof *made);
  uint32_t k;
  (void)scratch;
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *made = *(const call*)state;
  for (k = 0; k < n && k < 4; ++k) made->at[k] = args[k] ? (char*)args[k]->data + args[k]->byte_offset : NULL;
  *record = made;
  return ENG_OK;
}

static eng_status launch_isru(void* record, const eng_exec* exec, eng_error* error) {
  const call* c = record;
  int64_t i;
  (void)exec, (void)error;
  if (c->dtype == ENG_F64) {
    const double* x = c->at[0];
    double* y = c->at[1];
    for (i = 0; i < c->n; ++i) y[i] = x[i] / sqrt(1 + c->a * x[i] * x[i]);
  } else {
    const float *x = c->at[0], a = (float)c->a;
    float* y = c->at[1];
    for (i = 0; i < c->n; ++i) y[i] = x[i] / sqrtf(1 + a * x[i] * x[i]);
  }
  return ENG_OK;
}

static eng_status launch_isru_grad(void* record, const eng_exec* exec, eng_error* error) {
  const call* c = record;
  int64_t i;
  (void)exec, (void)error;
  if (c->dtype == ENG_F64) {
    const double *dy = c->at[0], *x = c->at[1], *sum = c->at[2];
    double* dx = c->at[3];
    for (i = 0; i < c->n; ++i) {
      const double r = 1 / sqrt(1 + c->a * x[i] * x[i]);
      dx[i] = (sum ? sum[i] : 0) + dy[i] * r * r * r;
    }
  } else {
    const float *dy = c->at[0], *x = c->at[1], *sum = c->at[2], a = (float)c->a;
    float* dx = c->at[3];
    for (i = 0; i < c->n; ++i) {
      const float r = 1 / sqrtf(1 + a * x[i] * x[i]);
      dx[i] = (sum ? sum[i] : 0) + dy[i] * r * r * r;
    }
  }
  return ENG_OK;
}

static const eng_kernel isru_kernel = {sizeof(eng_kernel), 0, ISRU, workspace, prepare, bind, launch_isru, free, free};
static const eng_kernel grad_kernel = {sizeof(eng_kernel), 0,    ISRU_GRAD, workspace, prepare, bind,
                                       launch_isru_grad,   free, free};
static const eng_kernel* const kernel_list[] = {&isru_kernel, &grad_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

/* ---- the model: tokens -> embedding -> linear, op, linear -> loss ---- */

typedef struct model {
  int64_t vocabulary, hidden;
  double a;
} model;

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  model made = {0, 0, 0}, *kept;
  eng_status s = options->get_int(options, "vocab_size", &made.vocabulary, error);
  if (s == ENG_OK) s = options->get_int(options, "hidden_size", &made.hidden, error);
  if (s == ENG_OK) s = options->get_float(options, "a", &made.a, error);
  if (s != ENG_OK) return s;
  kept = malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status describe_model(void* self, eng_model_info* out, eng_error* error) {
  (void)error;
  out->vocabulary = ((const model*)self)->vocabulary;
  out->layers = 1;
  return ENG_OK;
}

static eng_id matrix(eng_build* b, const char* name, int64_t rows, int64_t columns) {
  eng_attr normal[2] = {{"mean", 0, 0}, {"std", 0, 0}};
  eng_param param = {sizeof(eng_param), 0, NULL, ENG_OP_INIT_NORMAL, NULL, NULL, 2, 2};
  int64_t dims[2];
  eng_id id = 0;
  dims[0] = rows, dims[1] = columns;
  normal[1].f = 1 / sqrt((double)columns);
  param.name = name, param.init = normal, param.dims = dims;
  b->api->param(b, &param, &id, NULL);
  return id;
}

static eng_status declare(void* self, eng_build* b, eng_error* error) {
  const model* m = self;
  eng_id embed, layer[2], head;
  embed = matrix(b, "embed", m->vocabulary, m->hidden);
  layer[0] = matrix(b, "up", m->hidden, m->hidden);
  layer[1] = matrix(b, "down", m->hidden, m->hidden);
  head = matrix(b, "head", m->vocabulary, m->hidden);
  b->api->block(b, "embed", 0, &embed, 1, NULL);
  b->api->block(b, "layer", 1, layer, 2, NULL);
  b->api->block(b, "head", 2, &head, 1, NULL);
  return b->api->status(b, error);
}

static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params,
                        const eng_id* in, uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  eng_attr a = {"a", 0, 0};
  eng_id batch = 0, x;
  (void)n_params, (void)n_in, (void)cap;
  a.f = ((const model*)self)->a;
  if (tmpl == 0) {
    b->api->batch(b, "tokens", &batch, NULL);    /* (B, T) */
    out[0] = eng_embedding(b, batch, params[0]); /* (B, T, H) */
  } else if (tmpl == 1) {
    x = eng_linear(b, in[0], params[0], 0);
    x = eng_emit1(b, ISRU, &x, 1, &a, 1);
    x = eng_linear(b, x, params[1], 0);
    out[0] = eng_add(b, x, in[0]);
  } else {
    b->api->batch(b, "labels", &batch, NULL);
    out[0] = eng_cross_entropy(b, in[0], params[0], batch); /* (1) */
  }
  *n_out = 1;
  return b->api->status(b, error);
}

static const eng_model model_table = {.struct_size = sizeof(eng_model),
                                      .create = create,
                                      .destroy = destroy,
                                      .describe = describe_model,
                                      .declare = declare,
                                      .trace = trace};

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
  if (!strcmp(kind, ENG_OPS_KIND)) return &ops;
  if (!strcmp(kind, ENG_KERNELS_KIND)) return &kernels;
  return !strcmp(kind, ENG_MODEL_KIND) ? &model_table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
