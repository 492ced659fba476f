/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's strategy, compiled against abi/ alone: everything in parts, as with ZeRO 3, and all traffic in two
 * steps, so that most of it stays inside a node.
 *
 * W = nodes * n ranks, rank = node * n + local. A gradient is first summed inside the node, which leaves range `local`
 * of n there, and of that range between the nodes, which leaves range `node` of `nodes`: index local * nodes + node.
 * The gather takes the same way back: first between nodes, which gives range `local`, then inside the node.
 * The ranks of a node are neighbours, and where n is a power of two they are a sub-tree of the flat sum: same bits. */
#include "engine/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.two_level'\n"
  "name = 'Two levels'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'everything in parts, gathered and reduced inside a node and between nodes'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_ZERO_DRAFT "'\n"
  "name = 'two_level'\n"
  "\n"
  "[provides.options.ranks_per_node]\n"
  "type = 'int'\n"
  "default = 2\n"
  "min = 1\n"
  "max = 65536\n"
  "help = 'ranks that share a node: neighbours in the order of ranks'\n")
/* clang-format on */

typedef struct level {
  uint32_t members;
  eng_id group;
} level;

typedef struct strategy {
  level node;    /* the ranks of this node */
  level between; /* those with this one's place in every node */
  uint32_t local;
  eng_id part;
} strategy;

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* Every rank makes all groups of one kind, in the same order, and remembers its own. */
static eng_status make_groups(eng_build* b, uint32_t count, level* own, uint32_t own_number, uint32_t first_step,
                              uint32_t step, eng_error* error) {
  eng_status s = ENG_OK;
  uint32_t k, j, *ranks = (uint32_t*)malloc(own->members * sizeof *ranks);
  if (!ranks) return fail(error, ENG_NO_MEMORY, "out of memory");
  for (k = 0; k < count && s == ENG_OK; ++k) {
    eng_id id = 0;
    for (j = 0; j < own->members; ++j) ranks[j] = k * first_step + j * step;
    s = b->api->group(b, ranks, own->members, &id, error);
    if (k == own_number) own->group = id;
  }
  free(ranks);
  return s;
}

static eng_status create(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  eng_status s;
  int64_t given = 0;
  uint32_t rank = 0, world = 0, n, nodes;
  char text[200];
  strategy made, *kept;
  eng_part part;
  if ((s = options->get_int(options, "ranks_per_node", &given, error)) != ENG_OK) return s;
  if ((s = b->api->world(b, &rank, &world, error)) != ENG_OK) return s;
  if (given < 1 || given > world || world % given != 0) {
    snprintf(text, sizeof text, "%u ranks are no multiple of ranks_per_node = %lld; set it to a divisor of %u",
             (unsigned)world, (long long)given, (unsigned)world);
    return fail(error, ENG_INVALID, text);
  }
  n = (uint32_t)given, nodes = world / n;
  if (nodes > 1 && (n & (n - 1)) != 0) {
    snprintf(text, sizeof text,
             "ranks_per_node = %u is no power of two: sums inside such nodes are no part of the tree over all ranks",
             n);
    return fail(error, ENG_UNSUPPORTED, text);
  }
  made.node.members = n, made.node.group = 0;
  made.between.members = nodes, made.between.group = 0;
  made.local = rank % n;
  if ((s = make_groups(b, nodes, &made.node, rank / n, n, 1, error)) != ENG_OK) return s;
  if ((s = make_groups(b, n, &made.between, rank % n, 1, n, error)) != ENG_OK) return s;
  part.struct_size = sizeof part;
  part.count = world;
  part.index = made.local * nodes + rank / n;
  part.group = 1;
  if ((s = b->api->part(b, &part, &made.part, error)) != ENG_OK) return s;
  kept = (strategy*)malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status place(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  (void)unit, (void)error;
  io->part = role == ENG_ROLE_PARTIAL || role == ENG_ROLE_ACT ? 0 : ((const strategy*)self)->part;
  return ENG_OK;
}

static eng_status emit(eng_build* b, const char* op, eng_id in, eng_id* out, const char* key, uint32_t number,
                       eng_error* error) {
  eng_attr attr;
  attr.key = key, attr.i = number, attr.f = 0;
  return b->api->emit(b, op, &in, 1, out, 1, &attr, 1, error);
}

/* The range of this rank of `in`, summed over a level in the type `dtype`. */
static eng_status sum(const level* l, eng_build* b, eng_id in, eng_id* out, int32_t dtype, eng_error* error) {
  eng_id rows = 0;
  eng_attr attrs[2] = {{"rows", 0, 0}, {"dtype", 0, 0}};
  eng_status s = emit(b, ENG_OP_ALL_TO_ALL, in, &rows, "group", l->group, error);
  attrs[0].i = l->members, attrs[1].i = dtype;
  return s != ENG_OK ? s : b->api->emit(b, ENG_OP_FOLD, &rows, 1, out, 1, attrs, 2, error);
}

static eng_status move(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const strategy* t = (const strategy*)self;
  eng_status s;
  eng_id half = 0, dst = m->dst;
  if (m->role == ENG_ROLE_GRAD && m->from->part == 0 && m->to->part == t->part) {
    if ((s = sum(&t->node, b, m->src, &half, m->to->dtype, error)) != ENG_OK) return s;
    return sum(&t->between, b, half, &dst, m->to->dtype, error);
  }
  if (m->role >= ENG_ROLE_WEIGHT && m->role <= ENG_ROLE_STATE && m->from->part == t->part && m->to->part == 0) {
    /* The first step writes where the second one reads in place. */
    eng_desc whole;
    uint64_t count;
    if ((s = b->api->shape(b, dst, &whole, error)) != ENG_OK) return s;
    count = (uint64_t)whole.dims[0] / t->node.members;
    if ((s = b->api->slice(b, dst, t->local * count, count, &half, error)) != ENG_OK) return s;
    if ((s = emit(b, ENG_OP_ALL_GATHER, m->src, &half, "group", t->between.group, error)) != ENG_OK) return s;
    return emit(b, ENG_OP_ALL_GATHER, half, &dst, "group", t->node.group, error);
  }
  return fail(error, ENG_UNSUPPORTED, "two_level gathers weights, masters and states, and sums gradients into parts");
}

static const eng_axis table = {sizeof(eng_axis), 0, create, destroy, place, move, NULL, NULL, 0, 0, NULL, NULL};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_ZERO_KIND) == 0 && strcmp(name, "two_level") == 0 ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
