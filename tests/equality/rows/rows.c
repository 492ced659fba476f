/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's optimizer with every kind of state, compiled against abi/ alone. Matrices are updated whole: each row of
 * the gradient is divided by the root of a running mean of its squares, one value per row. All other parameters are
 * divided by the largest gradient so far of each 256 elements, one value per block. */
#include "engine/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define OP_ROWS "org.example.rows.rows/1"     /* in: g (M, N), r (M); out: g, r, in place */
#define OP_BLOCKS "org.example.rows.blocks/1" /* in: p, g (n), b (n/256), scalars; out: p, b, in place */
enum { block = 256 };

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.rows'\n"
  "name = 'Rows'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "[[provides]]\n"
  "kind = '" ENG_OPTIMIZER_DRAFT "'\n"
  "name = 'rows'\n"
  "[provides.options]\n"
  "decay = { type = 'float', default = 0.9, min = 0.0, max = 1.0, per_group = true }\n"
  "[[provides]]\n"
  "kind = '" ENG_OPS_DRAFT "'\n"
  "name = 'rows'\n"
  "[[provides]]\n"
  "kind = '" ENG_KERNELS_DRAFT "'\n"
  "name = 'reference'\n")
/* clang-format on */

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* ---- the optimizer */

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  int64_t steps = 0;
  double peak = 0, rate = 0;
  eng_status s = options->get_int(options, "train.steps", &steps, error);
  if (s == ENG_OK) s = options->get_float(options, "train.peak_rate", &peak, error);
  if (s == ENG_OK) s = options->get_float(options, "learning_rate", &rate, error);
  if (s != ENG_OK) return s;
  if (steps < 1 || peak != rate) return fail(error, ENG_INVALID, "train.steps or train.peak_rate are not the run's");
  *self = NULL;
  return ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}

static eng_status row_shape(void* self, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  (void)self, (void)error;
  io->kind = p->shape->ndim == 2 ? ENG_STATE_SHAPED : ENG_STATE_NONE;
  io->ndim = 1, io->dims[0] = p->shape->dims[0];
  return ENG_OK;
}
static eng_status block_shape(void* self, const eng_parameter* p, eng_state_shape* io, eng_error* error) {
  (void)self, (void)error;
  io->kind = p->shape->ndim == 2 ? ENG_STATE_NONE : ENG_STATE_BLOCKS;
  io->block = block;
  return ENG_OK;
}

static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 2) return fail(error, ENG_OUT_OF_RANGE, "no room");
  out[0].name = "row_mean", out[0].dtype = ENG_F32, out[0].shape = row_shape;
  out[1].name = "block_max", out[1].dtype = ENG_F32, out[1].shape = block_shape;
  *n = 2;
  return ENG_OK;
}

static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)cap, (void)error;
  out[0] = k == 1;
  *n = 1;
  return ENG_OK;
}

/* The parts of a run lie one after the other inside of it, and say where they are in their parameter. */
static int sound(const eng_update* run) {
  uint64_t end = 0;
  uint32_t k;
  for (k = 0; k < run->n_ranges; ++k) {
    const eng_range* e = &run->ranges[k];
    uint64_t all = 1;
    uint32_t d;
    for (d = 0; d < e->parameter->shape->ndim; ++d) all *= (uint64_t)e->parameter->shape->dims[d];
    if (e->offset < end || e->first + e->count > all || !e->count || !e->parameter->name[0]) return 0;
    if (e->parameter->block >= e->parameter->blocks || e->parameter->flags != run->flags) return 0;
    end = e->offset + e->count;
  }
  return run->n_ranges > 0;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  eng_id in[4], out[2];
  eng_attr decay = {"decay", 0, 0};
  const eng_attr none[3] = {{"momentum", 0, 0}, {"weight_decay", 0, 0}, {"nesterov", 0, 0}};
  const eng_options* own = run->n_ranges ? run->ranges[0].parameter->options : NULL;
  eng_status s;
  (void)self;
  if (run->n_ranges && !sound(run)) return fail(error, ENG_INTERNAL, "the run is not described as it is");
  if (own && (s = own->get_float(own, "decay", &decay.f, error)) != ENG_OK) return s;
  switch (run->stage) {
    case ENG_STAGE_BEFORE:
      return ENG_OK;
    case ENG_STAGE_WHOLE:
      if (run->master || run->states[1] || run->n_ranges != 1) return fail(error, ENG_INTERNAL, "too much is given");
      in[0] = out[0] = run->grad, in[1] = out[1] = run->states[0];
      return b->api->emit(b, OP_ROWS, in, 2, out, 2, &decay, 1, error);
    case ENG_STAGE_AFTER:
      in[0] = run->master, in[1] = run->grad, in[2] = 0, in[3] = run->scalars;
      out[0] = run->master;
      return b->api->emit(b, ENG_OP_SGD, in, 4, out, 1, none, 3, error);
    default:
      if (run->states[0] || !run->states[1]) return fail(error, ENG_INTERNAL, "not the states that were asked for");
      in[0] = out[0] = run->master, in[1] = run->grad, in[2] = out[1] = run->states[1], in[3] = run->scalars;
      return b->api->emit(b, OP_BLOCKS, in, 4, out, 2, &decay, 1, error);
  }
}

static const eng_optimizer optimizer = {sizeof(eng_optimizer), 1, create, destroy, states, scalars, update};

/* ---- its ops */

static eng_status infer_rows(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2 || c->in[0].ndim != 2 || c->in[1].dims[0] != c->in[0].dims[0])
    return fail(error, ENG_INVALID, "takes g (M, N) and r (M)");
  out[0] = c->in[0], out[1] = c->in[1], *n = 2;
  return ENG_OK;
}
static eng_status infer_blocks(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 2 || c->in[0].dims[0] != c->in[1].dims[0] || c->in[2].dims[0] * block != c->in[0].dims[0])
    return fail(error, ENG_INVALID, "takes p and g (n), b (n/256)");
  out[0] = c->in[0], out[1] = c->in[2], *n = 2;
  return ENG_OK;
}

static const eng_in_place rows_place[] = {{0, 0, 1, 0}, {1, 1, 1, 0}}, blocks_place[] = {{0, 0, 1, 0}, {1, 2, 1, 0}};
static const eng_op rows_op = {.struct_size = sizeof(eng_op),
                               .id = OP_ROWS,
                               .min_in = 2,
                               .max_in = 2,
                               .infer = infer_rows,
                               .in_place = rows_place,
                               .n_in_place = 2};
static const eng_op blocks_op = {.struct_size = sizeof(eng_op),
                                 .id = OP_BLOCKS,
                                 .min_in = 4,
                                 .max_in = 4,
                                 .infer = infer_blocks,
                                 .in_place = blocks_place,
                                 .n_in_place = 2};
static const eng_op* const op_list[] = {&rows_op, &blocks_op};
static const eng_ops ops = {sizeof(eng_ops), 2, op_list};

/* ---- its kernels */

typedef struct use {
  int64_t rows, columns; /* of blocks: elements, 0 */
  float decay;
  float* at[6];
} use;

static eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* error) {
  (void)c, (void)error;
  *bytes = 0;
  return ENG_OK;
}
static eng_status prepare(void* device, const eng_call* c, void** state, eng_error* error) {
  use* u = (use*)calloc(1, sizeof *u);
  (void)device;
  if (!u) return fail(error, ENG_NO_MEMORY, "out of memory");
  u->rows = c->in[0].dims[0], u->columns = c->in[0].ndim == 2 ? c->in[0].dims[1] : 0;
  u->decay = (float)c->attrs[0].f;
  *state = u;
  return ENG_OK;
}
static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  use* u = (use*)malloc(sizeof *u);
  uint32_t k;
  (void)scratch;
  if (!u) return fail(error, ENG_NO_MEMORY, "out of memory");
  *u = *(use*)state;
  for (k = 0; k < n && k < 6; ++k) u->at[k] = (float*)((char*)args[k]->data + args[k]->byte_offset);
  *record = u;
  return ENG_OK;
}
static eng_status launch_rows(void* record, const eng_exec* exec, eng_error* error) {
  const use* u = (const use*)record;
  int64_t i, j;
  (void)exec, (void)error;
  for (i = 0; i < u->rows; ++i) {
    float *g = u->at[0] + i * u->columns, sum = 0;
    for (j = 0; j < u->columns; ++j) sum += g[j] * g[j];
    u->at[1][i] = u->decay * u->at[1][i] + (1 - u->decay) * (sum / (float)u->columns);
    for (j = 0; j < u->columns; ++j) g[j] = g[j] / (sqrtf(u->at[1][i]) + 1e-8f);
  }
  return ENG_OK;
}
static eng_status launch_blocks(void* record, const eng_exec* exec, eng_error* error) {
  const use* u = (const use*)record;
  int64_t i, j;
  (void)exec, (void)error;
  for (i = 0; i < u->rows / block; ++i) {
    float *p = u->at[0] + i * block, *b = u->at[2] + i, most = u->decay * *b;
    const float* g = u->at[1] + i * block;
    for (j = 0; j < block; ++j) most = fabsf(g[j]) > most ? fabsf(g[j]) : most;
    *b = most;
    for (j = 0; j < block; ++j) p[j] = p[j] - u->at[3][ENG_S_LR] * (g[j] / (most + 1e-8f));
  }
  return ENG_OK;
}

static const eng_kernel rows_kernel = {.struct_size = sizeof(eng_kernel),
                                       .op = OP_ROWS,
                                       .workspace = workspace,
                                       .prepare = prepare,
                                       .bind = bind,
                                       .launch = launch_rows,
                                       .drop_record = free,
                                       .drop_state = free};
static const eng_kernel blocks_kernel = {.struct_size = sizeof(eng_kernel),
                                         .op = OP_BLOCKS,
                                         .workspace = workspace,
                                         .prepare = prepare,
                                         .bind = bind,
                                         .launch = launch_blocks,
                                         .drop_record = free,
                                         .drop_state = free};
static const eng_kernel* const kernel_list[] = {&rows_kernel, &blocks_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 2, kernel_list};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  if (!strcmp(kind, ENG_OPTIMIZER_KIND) && !strcmp(name, "rows")) return &optimizer;
  if (!strcmp(kind, ENG_OPS_KIND) && !strcmp(name, "rows")) return &ops;
  if (!strcmp(kind, ENG_KERNELS_KIND) && !strcmp(name, "reference")) return &kernels;
  return NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
