/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's strategy that sums gradients with an op of its own, and that nothing but [zero] names. With BORROWS, the
 * id of an op: the same strategy in a file without ops, which uses that one. FLAGS are those of its table. */
#include "engine/policy.h"

#include <stdlib.h>
#include <string.h>

#include "engine/op.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define OP_SUM "org.example.own_op.sum/1" /* in: x (2 n); out: (n): the sum of both halves */

/* clang-format off */
#ifdef BORROWS
#define ID "org.example.borrower"
#define USES "uses = ['" BORROWS "']\n"
#define OPS
#else
#define ID "org.example.own_op"
#define USES
#define OPS \
  "[[provides]]\n" \
  "kind = '" ENG_OPS_DRAFT "'\n" \
  "name = 'sum'\n" \
  "[[provides]]\n" \
  "kind = '" ENG_KERNELS_DRAFT "'\n" \
  "name = 'reference'\n"
#endif
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = '" ID "'\n"
  "name = 'Own op'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  USES
  "[[provides]]\n"
  "kind = '" ENG_ZERO_DRAFT "'\n"
  "name = 'own_op'\n"
  OPS)
/* clang-format on */

static eng_id own; /* the part of every object: there is one group, of all ranks */

static eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  eng_part part = {sizeof(eng_part), 0, 0, 1};
  eng_status s = b->api->world(b, &part.index, &part.count, error);
  (void)options;
  if (s == ENG_OK) s = b->api->part(b, &part, &own, error);
  if (s == ENG_OK) *self = NULL;
  return s;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status place(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  (void)self, (void)unit, (void)error;
  io->part = role == ENG_ROLE_GRAD ? own : 0;
  return ENG_OK;
}
static eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const eng_attr all = {"group", 1, 0};
  eng_id both = 0, dst = m->dst;
  eng_status s;
  (void)self;
  if (m->from->part) return b->api->emit(b, ENG_OP_ALL_GATHER, &m->src, 1, &dst, 1, &all, 1, error);
  s = b->api->emit(b, ENG_OP_ALL_TO_ALL, &m->src, 1, &both, 1, &all, 1, error);
  return s == ENG_OK ? b->api->emit(b, OP_SUM, &both, 1, &dst, 1, NULL, 0, error) : s;
}
#ifndef FLAGS
#define FLAGS 0
#endif
static const eng_axis axis = {sizeof(eng_axis), 0, create, destroy, place, move, NULL, NULL, FLAGS, 0, NULL, NULL};

static eng_status infer(const eng_call* c, eng_desc* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)cap, (void)error;
  out[0] = c->in[0], out[0].dims[0] /= 2, *n = 1;
  return ENG_OK;
}
static const eng_op sum_op = {.struct_size = sizeof(eng_op), .id = OP_SUM, .min_in = 1, .max_in = 1, .infer = infer};
static const eng_op* const op_list[] = {&sum_op};
static const eng_ops ops = {sizeof(eng_ops), 1, op_list};

static eng_status workspace(const eng_call* c, uint64_t* bytes, eng_error* error) {
  (void)c, (void)error;
  *bytes = 0;
  return ENG_OK;
}
static eng_status prepare(void* device, const eng_call* c, void** state, eng_error* error) {
  (void)device, (void)c, (void)error;
  *state = NULL;
  return ENG_OK;
}
static eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void* scratch, void** record,
                       eng_error* error) {
  (void)state, (void)args, (void)n, (void)scratch, (void)error;
  *record = NULL;
  return ENG_OK;
}
static eng_status launch(void* record, const eng_exec* exec, eng_error* error) {
  static const char text[] = "this kernel is only planned with";
  (void)record, (void)exec;
  if (error) error->set(error, ENG_UNSUPPORTED, text, strlen(text));
  return ENG_UNSUPPORTED;
}
static const eng_kernel sum_kernel = {.struct_size = sizeof(eng_kernel),
                                      .op = OP_SUM,
                                      .workspace = workspace,
                                      .prepare = prepare,
                                      .bind = bind,
                                      .launch = launch,
                                      .drop_record = free,
                                      .drop_state = free};
static const eng_kernel* const kernel_list[] = {&sum_kernel};
static const eng_kernels kernels = {sizeof(eng_kernels), 1, kernel_list};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  if (!strcmp(kind, ENG_ZERO_KIND) && !strcmp(name, "own_op")) return &axis;
  if (!strcmp(kind, ENG_OPS_KIND) && !strcmp(name, "sum")) return &ops;
  if (!strcmp(kind, ENG_KERNELS_KIND) && !strcmp(name, "reference")) return &kernels;
  return NULL;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
