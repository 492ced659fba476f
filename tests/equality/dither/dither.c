/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's precision policy that remembers something, compiled against abi/ alone: weights are bf16, rounded up
 * from a threshold that changes with every update. It counts the updates in a tensor of its own. */
#include <stdlib.h>
#include <string.h>

#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"
#include "engine/policy.h"

#define OP_COUNT "org.example.dither.count/1" /* in: count f32 (1); out: count, in place */
#define OP_ROUND "org.example.dither.round/1" /* in: x f32 (n), count f32 (1); out: bf16 (n) */

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.dither'\n"
  "name = 'Dither'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "[[provides]]\n"
  "kind = '" ENG_PRECISION_DRAFT "'\n"
  "name = 'dither'\n"
  "summary = 'bf16 weights, rounded at a threshold that each update changes'\n"
  "[[provides]]\n"
  "kind = '" ENG_OPS_DRAFT "'\n"
  "name = 'dither'\n"
  "[[provides]]\n"
  "kind = '" ENG_KERNELS_DRAFT "'\n"
  "name = 'reference'\n")
/* clang-format on */

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* ---- the policy */

static eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  (void)options, (void)b, (void)error;
  *self = NULL;
  return ENG_OK;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status place(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  (void)self, (void)unit, (void)error;
  if (role == ENG_ROLE_WEIGHT) io->dtype = ENG_BF16;
  return ENG_OK;
}
static eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  eng_id in[2], out = m->dst;
  eng_attr dtype = {"dtype", 0, 0};
  (void)self;
  dtype.i = m->to->dtype;
  in[0] = m->src;
  if (m->n_states != 1) return fail(error, ENG_INTERNAL, "the count is not given");
  in[1] = m->states[0];
  if (m->to->dtype == ENG_BF16) return b->api->emit(b, OP_ROUND, in, 2, &out, 1, NULL, 0, error);
  return b->api->emit(b, ENG_OP_CAST, in, 1, &out, 1, &dtype, 1, error);
}
static eng_status states(void* self, eng_policy_state* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self;
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "no room");
  out[0].name = "count";
  out[0].shape.dtype = ENG_F32, out[0].shape.ndim = 1, out[0].shape.dims[0] = 1;
  *n = 1;
  return ENG_OK;
}
static eng_status update(void* self, eng_build* b, const eng_policy_update* u, eng_error* error) {
  eng_id out = u->states[0];
  (void)self;
  return b->api->emit(b, OP_COUNT, u->states, 1, &out, 1, NULL, 0, error);
}
static const eng_axis axis = {.struct_size = sizeof(eng_axis),
                              .create = create,
                              .destroy = destroy,
                              .place = place,
                              .move = move,
                              .states = states,
                              .update = update};

/* ---- its ops */

static eng_status infer_count(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 1) return fail(error, ENG_OUT_OF_RANGE, "no room");
  out[0] = c->in[0], *n = 1;
  return ENG_OK;
}
static eng_status infer_round(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < 1 || c->in[0].dtype != ENG_F32) return fail(error, ENG_INVALID, "takes f32");
  out[0] = c->in[0], out[0].dtype = ENG_BF16, *n = 1;
  return ENG_OK;
}
static const eng_in_place count_place = {0, 0, 1, 0};
static const eng_op count_op = {.struct_size = sizeof(eng_op),
                                .id = OP_COUNT,
                                .min_in = 1,
                                .max_in = 1,
                                .infer = infer_count,
                                .in_place = &count_place,
                                .n_in_place = 1};
static const eng_op round_op = {
    .struct_size = sizeof(eng_op), .id = OP_ROUND, .min_in = 2, .max_in = 2, .infer = infer_round};
static const eng_op* const op_list[] = {&count_op, &round_op};
static const eng_ops ops = {sizeof(eng_ops), 2, op_list};

/* ---- their kernels */

typedef struct use {
  int64_t n;
  void* at[3];
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
  u->n = c->in[0].dims[0];
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
  for (k = 0; k < n && k < 3; ++k) u->at[k] = (char*)args[k]->data + args[k]->byte_offset;
  *record = u;
  return ENG_OK;
}
static eng_status launch_count(void* record, const eng_exec* exec, eng_error* error) {
  (void)exec, (void)error;
  *(float*)((const use*)record)->at[1] += 1.0f;
  return ENG_OK;
}
/* The golden ratio's multiples are spread evenly over the interval between two bf16. */
static eng_status launch_round(void* record, const eng_exec* exec, eng_error* error) {
  const use* u = (const use*)record;
  const float* x = (const float*)u->at[0];
  uint16_t* out = (uint16_t*)u->at[2];
  const uint32_t threshold = ((uint32_t) * (const float*)u->at[1] * 2654435769u) >> 16;
  int64_t i;
  (void)exec, (void)error;
  for (i = 0; i < u->n; ++i) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    out[i] = (uint16_t)((bits + threshold) >> 16);
  }
  return ENG_OK;
}
static const eng_kernel count_kernel = {.struct_size = sizeof(eng_kernel),
                                        .op = OP_COUNT,
                                        .workspace = workspace,
                                        .prepare = prepare,
                                        .bind = bind,
                                        .launch = launch_count,
                                        .drop_record = free,
                                        .drop_state = free};
static const eng_kernel round_kernel = {.struct_size = sizeof(eng_kernel),
                                        .op = OP_ROUND,
                                        .workspace = workspace,
                                        .prepare = prepare,
                                        .bind = bind,
                                        .launch = launch_round,
                                        .drop_record = free,
                                        .drop_state = free};
static const eng_kernel* const kernel_list[] = {&count_kernel, &round_kernel};
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
  if (!strcmp(kind, ENG_PRECISION_KIND) && !strcmp(name, "dither")) return &axis;
  if (!strcmp(kind, ENG_OPS_KIND) && !strcmp(name, "dither")) return &ops;
  if (!strcmp(kind, ENG_KERNELS_KIND) && !strcmp(name, "reference")) return &kernels;
  return NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
