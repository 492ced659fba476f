/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's plugin, compiled against abi/ alone: the op y = scale x^3 with its gradient, kernels for the device
 * `reference`; the loss d = sum of (x - y)^2 / 2, with the gradient of x alone, as one learns from a teacher; a loss
 * whose gradient computes it too, a random op, one that reads rows of a table; and ops with one fault each. */
#include "engine/op.h"

#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "engine/plugin.h"

#define CUBE "org.example.cube.cube/1"
#define CUBE_GRAD "org.example.cube.cube_grad/1"
#define DISTANCE "org.example.cube.distance/1"
#define DISTANCE_GRAD "org.example.cube.distance_grad/1"
#define CLOSENESS "org.example.cube.closeness/1"
#define CLOSENESS_GRAD "org.example.cube.closeness_grad/1"
#define JITTER "org.example.cube.jitter/1"
#define PICK "org.example.cube.pick/1"
#define SWELL "org.example.cube.swell/1"
#define STRAIGHT "org.example.cube.straight/1"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.cube'\n"
    "name = 'cube'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "[[provides]]\n"
    "kind = '" ENG_OPS_DRAFT
    "'\n"
    "name = 'cube'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'reference'\n"
    "[[provides]]\n" /* loads the plugin in the tests; a model would do */
    "kind = 'org.example.anchor/1'\n"
    "name = 'cube'\n")

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* ---- ops -------------------------------------------------------------------------------------------- */

static eng_status cube_infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (call->in[0].ndim != 3) return fail(error, ENG_INVALID, "x must be (B, T, H)");
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  out[0] = call->in[0];
  *n_out = 1;
  return ENG_OK;
}

static double cube_flops(const eng_call* call) {
  double n = 3.0;
  uint32_t k;
  for (k = 0; k < call->out[0].ndim; ++k) n *= (double)call->out[0].dims[k];
  return n;
}

static eng_status cube_grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  uint32_t n = 0;
  const eng_attr* attrs = api->attrs(g, &n);
  if (api->wants(g, 0)) {
    eng_id in[3], dx = 0;
    in[0] = api->d_out(g, 0), in[1] = api->in(g, 0), in[2] = api->take(g, 0);
    api->emit(g, CUBE_GRAD, in, 3, &dx, 1, attrs, n, 0);
    api->give(g, 0, dx);
  }
  return api->status(g, error);
}

static eng_status unknown_grad(eng_gradient* g, eng_error* error) {
  eng_id in[1], dx = 0;
  in[0] = g->api->d_out(g, 0);
  g->api->emit(g, "org.example.cube.nothing/1", in, 1, &dx, 1, 0, 0, 0);
  g->api->give(g, 0, dx); /* does nothing: the error sticks */
  return g->api->status(g, error);
}

static eng_status misshapen_grad(eng_gradient* g, eng_error* error) {
  eng_id in[1], dx = 0;
  in[0] = g->api->d_out(g, 0);
  g->api->emit(g, ENG_OP_SUM_ROWS, in, 1, &dx, 1, 0, 0, 0);
  g->api->give(g, 0, dx);
  return g->api->status(g, error);
}

static eng_status refusing_grad(eng_gradient* g, eng_error* error) {
  (void)g;
  return fail(error, ENG_UNSUPPORTED, "not on Sundays");
}

static eng_status distance_infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (call->in[0].ndim != 3) return fail(error, ENG_INVALID, "x must be (B, T, H)");
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  memset(out, 0, sizeof(*out));
  out[0].dtype = call->in[0].dtype, out[0].ndim = 1, out[0].dims[0] = 1;
  *n_out = 1;
  return ENG_OK;
}

static eng_status distance_grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  if (api->wants(g, 0)) {
    eng_id in[3], dx = 0;
    in[0] = api->in(g, 0), in[1] = api->in(g, 1), in[2] = api->d_out(g, 0);
    api->emit(g, DISTANCE_GRAD, in, 3, &dx, 1, 0, 0, 0);
    api->give(g, 0, dx);
  }
  return api->status(g, error);
}

/* closeness = sum of (x - y - t)^2 / 2. in: x, [y], t; its gradient: x, [y], t, scalars, out: the loss and dx. */
static eng_status closeness_grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  eng_attr attr = {"weight", 0, 0};
  eng_id in[4], out[2] = {0, 0};
  attr.f = api->weight(g, 0);
  in[0] = api->in(g, 0), in[1] = api->in(g, 1), in[2] = api->in(g, 2), in[3] = api->scalars(g);
  api->emit(g, CLOSENESS_GRAD, in, 4, out, 2, &attr, 1, 0);
  api->replaces(g, 0, out[0]);
  if (api->wants(g, 0)) api->give(g, 0, out[1]);
  return api->status(g, error);
}

static eng_status closeness_grad_infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out,
                                       eng_error* error) {
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "there are two outputs");
  if (distance_infer(call, out, cap, n_out, error) != ENG_OK) return ENG_INVALID;
  out[1] = call->in[0];
  *n_out = 2;
  return ENG_OK;
}

/* jitter = x * (1 + the number of the step): as random as a test can foresee. */
static eng_status jitter_grad(eng_gradient* g, eng_error* error) {
  const eng_gradient_api* api = g->api;
  uint32_t n = 0;
  const eng_attr* attrs = api->attrs(g, &n);
  eng_id in = api->d_out(g, 0), dx = 0;
  api->emit(g, JITTER, &in, 1, &dx, 1, attrs, n, 0);
  api->give(g, 0, dx);
  return api->status(g, error);
}

/* pick: rows of a table (R, H) by ids (B, T). */
static eng_status pick_infer(const eng_call* call, eng_desc* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  if (call->in[0].dtype != ENG_I32 || call->in[1].ndim != 2)
    return fail(error, ENG_INVALID, "ids (B, T), table (R, H)");
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "there is one output");
  out[0] = call->in[0];
  out[0].dtype = call->in[1].dtype, out[0].ndim = 3, out[0].dims[2] = call->in[1].dims[1];
  *n_out = 1;
  return ENG_OK;
}

static eng_status nothing_grad(eng_gradient* g, eng_error* error) {
  return g->api->status(g, error);
}

static uint32_t rebuild_adrift(const eng_call* call, uint32_t* from, uint32_t cap) {
  (void)call, (void)cap;
  from[0] = ENG_OP_OUTPUT + 1;
  return 1;
}

#define OP(op, inputs, shapes) \
  .struct_size = sizeof(eng_op), .id = op, .min_in = inputs, .max_in = inputs, .infer = shapes
static const eng_in_place cube_grad_in_place[] = {{0, 2, 1, 0}};
static const eng_index pick_rows[] = {{0, 1, ENG_INDEX_TOKENS, 0}};
static const eng_op cube = {OP(CUBE, 1, cube_infer), .flags = ENG_OP_CHEAP, .flops = cube_flops, .grad = cube_grad};
static const eng_op cube_back = {.struct_size = sizeof(eng_op),
                                 .id = CUBE_GRAD,
                                 .min_in = 2,
                                 .max_in = 3,
                                 .infer = cube_infer,
                                 .in_place = cube_grad_in_place,
                                 .n_in_place = 1};
static const eng_op distance = {OP(DISTANCE, 2, distance_infer), .grad = distance_grad};
static const eng_op distance_back = {OP(DISTANCE_GRAD, 3, cube_infer)};
static const eng_op closeness = {OP(CLOSENESS, 3, distance_infer), .flags = ENG_OP_FUSED_GRAD, .grad = closeness_grad,
                                 .optional = 1u << 1};
static const eng_op closeness_back = {OP(CLOSENESS_GRAD, 4, closeness_grad_infer), .optional = 1u << 1};
static const eng_op jitter = {OP(JITTER, 1, cube_infer), .flags = ENG_OP_RANDOM | ENG_OP_BY_POSITION,
                              .grad = jitter_grad, .counts_as = 3};
static const eng_op pick = {OP(PICK, 2, pick_infer), .grad = nothing_grad, .indexes = pick_rows, .n_indexes = 1};
static const eng_op no_gradient = {OP("org.example.cube.no_gradient/1", 1, cube_infer)};
static const eng_op unknown = {OP("org.example.cube.unknown/1", 1, cube_infer), .grad = unknown_grad};
static const eng_op misshapen = {OP("org.example.cube.misshapen/1", 1, cube_infer), .grad = misshapen_grad};
static const eng_op refusing = {OP("org.example.cube.refusing/1", 1, cube_infer), .grad = refusing_grad};
static const eng_op adrift = {OP("org.example.cube.adrift/1", 1, cube_infer), .flags = ENG_OP_CHEAP, .grad = cube_grad,
                              .rebuild = rebuild_adrift};
static const eng_op swollen = {OP("org.example.cube.swollen/1", 1, distance_infer), .flags = ENG_OP_RANDOM,
                               .grad = nothing_grad};
/* Made of other ops: swell = silu(x) x + scale x; straight = x + 3 x, with a gradient of its own; both = straight of
 * swell. */
static eng_id emitted(struct eng_build* b, const char* op, eng_id x, eng_id y, const eng_attr* attr) {
  eng_id in[2], out = 0;
  in[0] = x, in[1] = y;
  b->api->emit(b, op, in, y ? 2 : 1, &out, 1, attr, attr ? 1 : 0, 0);
  return out;
}

static eng_status expand_swell(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                               eng_error* error) {
  const eng_attr act = {"act", ENG_ACT_SILU, 0};
  eng_attr factor = {"factor", 0, 0};
  const eng_id gate = emitted(b, ENG_OP_GATED, in[0], in[0], &act);
  factor.f = call->attrs[0].f;
  out[0] = emitted(b, ENG_OP_ADD, gate, emitted(b, ENG_OP_SCALE, in[0], 0, &factor), 0);
  return b->api->status(b, error);
}

static eng_status expand_straight(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                  eng_error* error) {
  const eng_attr three = {"factor", 0, 3.0};
  (void)call;
  out[0] = emitted(b, ENG_OP_ADD, in[0], emitted(b, ENG_OP_SCALE, in[0], 0, &three), 0);
  return b->api->status(b, error);
}

static eng_status straight_grad(eng_gradient* g, eng_error* error) {
  const eng_attr four = {"factor", 0, 4.0};
  eng_id in = g->api->d_out(g, 0), dx = 0;
  g->api->emit(g, ENG_OP_SCALE, &in, 1, &dx, 1, &four, 1, 0);
  g->api->give(g, 0, dx);
  return g->api->status(g, error);
}

static eng_status expand_both(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                              eng_error* error) {
  out[0] = emitted(b, STRAIGHT, emitted(b, SWELL, in[0], 0, call->attrs), 0, 0);
  return b->api->status(b, error);
}

static eng_status expand_endless(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                 eng_error* error) {
  (void)call;
  out[0] = emitted(b, "org.example.cube.endless/1", in[0], 0, 0);
  return b->api->status(b, error);
}

static eng_status expand_endless_node(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                      eng_error* error) {
  (void)call;
  out[0] = emitted(b, "org.example.cube.endless_node/1", in[0], 0, 0);
  return b->api->status(b, error);
}

static eng_status expand_folded(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                eng_error* error) {
  (void)call;
  out[0] = emitted(b, ENG_OP_SUM_ROWS, in[0], 0, 0);
  return b->api->status(b, error);
}

static eng_status expand_nothing(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                 eng_error* error) {
  (void)b, (void)call, (void)in, (void)out, (void)error;
  return ENG_OK;
}

static eng_status expand_through(struct eng_build* b, const eng_call* call, const eng_id* in, eng_id* out,
                                 eng_error* error) {
  (void)b, (void)call, (void)error;
  out[0] = in[0];
  return ENG_OK;
}

static const eng_op swell = {OP(SWELL, 1, cube_infer), .expand = expand_swell};
static const eng_op straight = {OP(STRAIGHT, 1, cube_infer), .grad = straight_grad, .expand = expand_straight};
static const eng_op both = {OP("org.example.cube.both/1", 1, cube_infer), .expand = expand_both};
static const eng_op endless = {OP("org.example.cube.endless/1", 1, cube_infer), .expand = expand_endless};
static const eng_op endless_node = {OP("org.example.cube.endless_node/1", 1, cube_infer), .grad = straight_grad,
                                    .expand = expand_endless_node};
static const eng_op folded = {OP("org.example.cube.folded/1", 1, cube_infer), .expand = expand_folded};
static const eng_op nothing = {OP("org.example.cube.made_of_nothing/1", 1, cube_infer), .expand = expand_nothing};
static const eng_op through = {OP("org.example.cube.through/1", 1, cube_infer), .grad = straight_grad,
                               .expand = expand_through};
static const eng_op* const op_list[] = {
    &cube,      &cube_back,      &no_gradient,  &unknown, &misshapen, &refusing, &distance, &distance_back,
    &closeness, &closeness_back, &jitter,       &pick,    &adrift,    &swollen,  &swell,    &straight,
    &both,      &endless,        &endless_node, &folded,  &nothing,   &through};
static const eng_ops ops = {sizeof(eng_ops), sizeof op_list / sizeof *op_list, op_list};

/* ---- kernels ---------------------------------------------------------------------------------------- */

struct state {
  int64_t n;
  double scale;
  const double *a, *b, *c; /* cube: x; gradient: dy, x, the gradient so far */
  const void* d;           /* closeness_grad: the scalars */
  double *first, *out;     /* first: of two outputs */
};

static eng_status workspace(const eng_call* call, uint64_t* bytes, eng_error* error) {
  if (call->in[0].dtype != ENG_F64) return fail(error, ENG_UNSUPPORTED, "only f64");
  *bytes = 0;
  return ENG_OK;
}

static eng_status prepare(void* device, const eng_call* call, void** out, eng_error* error) {
  struct state* s = calloc(1, sizeof(*s));
  uint32_t k;
  (void)device;
  if (!s) return fail(error, ENG_NO_MEMORY, "out of memory");
  s->n = 1, s->scale = call->n_attrs ? call->attrs[0].f : 1.0;
  for (k = 0; k < call->in[0].ndim; ++k) s->n *= call->in[0].dims[k];
  *out = s;
  return ENG_OK;
}

static double* at(const DLTensor* t) {
  return t ? (double*)(void*)((char*)t->data + t->byte_offset) : 0;
}

static eng_status bind(void* from, const DLTensor* const* args, uint32_t n, void* scratch, void** out,
                       eng_error* error) {
  struct state* s = malloc(sizeof(*s));
  (void)scratch;
  if (!s) return fail(error, ENG_NO_MEMORY, "out of memory");
  *s = *(struct state*)from;
  s->a = at(args[0]), s->out = at(args[n - 1]);
  if (n > 2) s->b = at(args[1]);
  if (n > 3) s->c = at(args[2]);
  if (n > 4) s->d = at(args[3]), s->first = at(args[n - 2]);
  *out = s;
  return ENG_OK;
}

static eng_status run_cube(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  int64_t i;
  (void)exec, (void)error;
  for (i = 0; i < s->n; ++i) s->out[i] = s->scale * s->a[i] * s->a[i] * s->a[i];
  return ENG_OK;
}

static eng_status run_cube_grad(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  int64_t i;
  (void)exec, (void)error;
  for (i = 0; i < s->n; ++i) s->out[i] = (s->c ? s->c[i] : 0.0) + s->scale * 3.0 * s->b[i] * s->b[i] * s->a[i];
  return ENG_OK;
}

static eng_status run_distance(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  int64_t i;
  double sum = 0;
  (void)exec, (void)error;
  for (i = 0; i < s->n; ++i) sum += (s->a[i] - s->b[i]) * (s->a[i] - s->b[i]) / 2;
  s->out[0] = sum;
  return ENG_OK;
}

static eng_status run_distance_grad(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  int64_t i;
  (void)exec, (void)error;
  for (i = 0; i < s->n; ++i) s->out[i] = s->c[0] * (s->a[i] - s->b[i]);
  return ENG_OK;
}

static eng_status run_closeness(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  const float* scalars = s->d;
  double sum = 0, scale = 0;
  int64_t i;
  (void)exec, (void)error;
  if (s->d) scale = (double)scalars[ENG_S_INV_TOKENS] * (double)scalars[ENG_S_LOSS_SCALE] * s->scale;
  for (i = 0; i < s->n; ++i) {
    const double apart = s->a[i] - (s->b ? s->b[i] : 0.0) - s->c[i];
    sum += apart * apart / 2;
    if (s->d) s->out[i] = scale * apart;
  }
  (s->d ? s->first : s->out)[0] = sum;
  return ENG_OK;
}

static eng_status run_jitter(void* record, const eng_exec* exec, eng_error* error) {
  const struct state* s = record;
  const int64_t* counters = (const void*)s->b;
  int64_t i;
  (void)exec, (void)error;
  for (i = 0; i < s->n; ++i) s->out[i] = s->a[i] * (1.0 + (double)counters[ENG_C_STEP]);
  return ENG_OK;
}

static const eng_kernel closeness_kernel = {sizeof(eng_kernel), 0,    CLOSENESS, workspace, prepare, bind,
                                            run_closeness,      free, free};
static const eng_kernel closeness_grad_kernel = {
    sizeof(eng_kernel), 0, CLOSENESS_GRAD, workspace, prepare, bind, run_closeness, free, free};
static const eng_kernel jitter_kernel = {sizeof(eng_kernel), 0,    JITTER, workspace, prepare, bind,
                                         run_jitter,         free, free};
static const eng_kernel distance_kernel = {sizeof(eng_kernel), 0,    DISTANCE, workspace, prepare, bind,
                                           run_distance,       free, free};
static const eng_kernel distance_grad_kernel = {sizeof(eng_kernel), 0,    DISTANCE_GRAD, workspace, prepare, bind,
                                                run_distance_grad,  free, free};
static const eng_kernel cube_kernel = {sizeof(eng_kernel), 0, CUBE, workspace, prepare, bind, run_cube, free, free};
static const eng_kernel grad_kernel = {sizeof(eng_kernel), 0,    CUBE_GRAD, workspace, prepare, bind,
                                       run_cube_grad,      free, free};
static const eng_kernel* const kernel_list[] = {&cube_kernel,          &grad_kernel,      &distance_kernel,
                                                &distance_grad_kernel, &closeness_kernel, &closeness_grad_kernel,
                                                &jitter_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 7, kernel_list};

/* ---- plugin ----------------------------------------------------------------------------------------- */

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
  if (strcmp(kind, ENG_KERNELS_KIND) == 0) return &kernels;
  return &ops; /* the anchor of the tests is never called */
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
