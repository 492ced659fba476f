/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer (momentum), a precision policy (fp32), and a strategy that keeps everything in parts. */
#include "hostile.h"

static char object; /* of those that keep nothing */

/* ---- optimizer -------------------------------------------------------------------------------------- */

static eng_status create_optimizer(const eng_options* options, void** self, eng_error* error) {
  take_fault(options);
  ENTER("optimizer.create");
  *self = &object;
  return ENG_OK;
}

static void destroy(void* self) {
  (void)self;
}

static eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  uint32_t k;
  ENTER("optimizer.states");
  (void)self;
  *n = 1;
  for (k = 0; k < cap; ++k) out[k].name = "momentum_buffer", out[k].dtype = ENG_F32;
  if (is("states: 17")) *n = 17;
  if (is("states: 4 billion")) *n = UINT32_MAX;
  if (is("states: no name")) out[0].name = NULL;
  if (is("states: empty name")) out[0].name = "";
  if (is("states: odd name")) out[0].name = "\xff\n";
  if (is("states: the name of another role")) out[0].name = "parameter";
  if (is("states: two of a name")) *n = 2;
  if (is("states: no such type")) out[0].dtype = 99;
  if (is("states: does not write")) memset(out, 0, sizeof *out);
  return ENG_OK;
}

static eng_status scalars(void* self, uint64_t k, float* out, uint32_t cap, uint32_t* n, eng_error* error) {
  (void)self, (void)cap;
  ENTER("optimizer.scalars");
  if (k == 2) ENTER("optimizer.scalars later");
  out[0] = k == 1, *n = 1;
  if (is("scalars: 8")) *n = 8;
  if (is("scalars: 4 billion")) *n = UINT32_MAX;
  if (is("scalars: more of them later") && k > 1) out[1] = 0, *n = 2;
  if (is("scalars: fewer of them later") && k > 1) *n = 0;
  return ENG_OK;
}

static eng_status update(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  const eng_attr attrs[3] = {{"momentum", 0, 0.9}, {"weight_decay", 0, 0}, {"nesterov", 0, 0}};
  eng_id in[4], out[2];
  (void)self;
  ENTER("optimizer.update");
  in[0] = run->master, in[1] = run->grad, in[2] = run->states[0], in[3] = run->scalars;
  out[0] = run->master, out[1] = run->states[0];
  if (is("update: nothing")) return ENG_OK;
  if (is("update: aside")) out[0] = 0;
  if (is("update: into the gradient")) out[0] = run->grad;
  if (is("update: unknown value")) in[1] = 4711;
  if (is("update: into an unknown value")) out[1] = 4711;
  if (is("update: no inputs")) return b->api->emit(b, ENG_OP_SGD, NULL, 4, out, 2, attrs, 3, error);
  if (is("update: the batch")) b->api->batch(b, "tokens", out, NULL);
  if (is("update: of the scalars")) {
    in[0] = run->scalars, out[0] = run->scalars;
    return b->api->emit(b, ENG_OP_SCALE, in, 1, out, 1, attrs, 1, error);
  }
  if (is("update: all_to_all")) {
    const eng_attr group = {"group", 1, 0};
    return b->api->emit(b, ENG_OP_ALL_TO_ALL, in + 1, 1, out, 1, &group, 1, error);
  }
  if (is("update: too few inputs")) return b->api->emit(b, ENG_OP_SGD, in, 1, out, 2, attrs, 3, error);
  if (is("update: absent inputs")) in[0] = in[1] = in[2] = in[3] = 0;
  if (is("update: a foreign length")) {
    in[1] = run->scalars;
    return b->api->emit(b, ENG_OP_SGD, in, 4, out, 2, attrs, 3, error);
  }
  b->api->emit(b, ENG_OP_SGD, in, 4, out, 2, attrs, 3, NULL);
  return is("update: into an unknown value") ? ENG_OK : b->api->status(b, error);
}

static eng_optimizer optimizer = {sizeof(eng_optimizer), 1, create_optimizer, destroy, states, scalars, update};

const eng_optimizer* hostile_optimizer(void) {
  if (is("optimizer: granularity of 0")) optimizer.granularity = 0;
  if (is("optimizer: granularity of 3")) optimizer.granularity = 3;
  if (is("optimizer: granularity of 64")) optimizer.granularity = 64;
  if (is("optimizer: a small struct")) optimizer.struct_size = 16;
  return &optimizer;
}

/* ---- precision -------------------------------------------------------------------------------------- */

static eng_status create_precision(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  uint32_t rank, size;
  eng_id id = 0;
  take_fault(options);
  ENTER("precision.create");
  *self = &object;
  if (is("precision: asks for the world")) return b->api->world(b, &rank, &size, error);
  if (is("precision: a parameter")) b->api->param(b, NULL, &id, NULL);
  if (is("precision: an op")) eng_scale(b, 1, 2.0);
  if (is("precision: a group")) {
    const uint32_t all = 0;
    b->api->group(b, &all, 1, &id, NULL);
  }
  if (is("precision: a shape")) {
    eng_desc d;
    return b->api->shape(b, 1, &d, error);
  }
  return ENG_OK;
}

static eng_status place_precision(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  (void)self;
  ENTER("precision.place");
  if (unit) ENTER("precision.place of a unit");
  if (is("precision: no such type") && unit) io->dtype = 99;
  if (is("precision: no type at all")) io->dtype = 0;
  if (is("precision: whole numbers") && role == ENG_ROLE_WEIGHT) io->dtype = ENG_I32;
  if (is("precision: another part")) io->part = 7;
  if (is("precision: other activations") && role == ENG_ROLE_ACT) io->dtype = ENG_F16;
  if (is("precision: gradients of two types") && role == ENG_ROLE_PARTIAL) io->dtype = ENG_F64;
  /* Formats that are put together wrongly: where two types meet, the policy is asked for a move, which casts. */
  if ((is("precision: narrow partial gradients") || is("precision: a move to another type") ||
       is("precision: a move of no type")) &&
      role == ENG_ROLE_PARTIAL)
    io->dtype = ENG_BF16;
  if (is("precision: wide sums of gradients") && role == ENG_ROLE_GRAD) io->dtype = ENG_F64;
  if (is("precision: narrow sums of gradients") && role == ENG_ROLE_GRAD) io->dtype = ENG_F16;
  if (is("precision: narrow masters") && role == ENG_ROLE_MASTER) io->dtype = ENG_F16;
  if (is("precision: narrow states") && role == ENG_ROLE_STATE) io->dtype = ENG_BF16;
  if (is("precision: wide states") && role == ENG_ROLE_STATE) io->dtype = ENG_F64;
  if (is("precision: narrow weights alone") && role == ENG_ROLE_WEIGHT) io->dtype = ENG_BF16;
  /* Weights and their masters then differ: they are moved. */
  if (role == ENG_ROLE_WEIGHT &&
      (is("precision: moves nothing") || is("precision: moves aside") || is("fail precision.move") ||
       is("mute precision.move") || is("precision: writes the source")))
    io->dtype = ENG_F64;
  return ENG_OK;
}

static eng_status move_precision(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  (void)self;
  ENTER("precision.move");
  if (is("precision: moves aside")) eng_scale(b, m->dst, 1.0);
  if (is("precision: a move to another type") || is("precision: a move of no type")) {
    eng_id out = m->dst;
    const eng_attr dtype = {"dtype", is("precision: a move of no type") ? 99 : ENG_F64, 0};
    return b->api->emit(b, ENG_OP_CAST, &m->src, 1, &out, 1, &dtype, 1, error);
  }
  if (is("precision: other activations") || is("precision: narrow partial gradients") ||
      is("precision: wide sums of gradients") || is("precision: narrow sums of gradients") ||
      is("precision: narrow masters") || is("precision: narrow states") || is("precision: wide states") ||
      is("precision: narrow weights alone")) {
    eng_id out = m->dst;
    const eng_attr dtype = {"dtype", m->to->dtype, 0};
    return b->api->emit(b, ENG_OP_CAST, &m->src, 1, &out, 1, &dtype, 1, error);
  }
  if (is("precision: writes the source")) {
    eng_id out = m->src;
    const eng_attr attr = {"factor", 0, 1.0};
    return b->api->emit(b, ENG_OP_SCALE, &out, 1, &out, 1, &attr, 1, error);
  }
  return ENG_OK;
}

static eng_status precision_states(void* self, eng_policy_state* out, uint32_t cap, uint32_t* n, eng_error* error) {
  uint32_t k;
  (void)self;
  ENTER("precision.states");
  *n = is("precision: too many states") ? cap + 1 : 2;
  for (k = 0; k < 2; ++k) {
    out[k].name = k ? "two" : "one";
    out[k].shape.dtype = ENG_F32, out[k].shape.ndim = 1, out[k].shape.dims[0] = 4;
  }
  if (is("precision: a state without a name")) out[0].name = NULL;
  if (is("precision: states of one name")) out[0].name = "two";
  if (is("precision: a state of no type")) out[1].shape.dtype = 99;
  if (is("precision: a state of 7 dimensions")) out[1].shape.ndim = 7;
  if (is("precision: a state of negative size")) out[1].shape.dims[0] = -1;
  return ENG_OK;
}

static eng_status precision_update(void* self, eng_build* b, const eng_policy_update* u, eng_error* error) {
  eng_id out = u->states[0];
  eng_attr factor = {"factor", 0, 2.0};
  (void)self;
  ENTER("precision.update");
  if (is("precision: updates the scalars")) out = u->scalars;
  if (is("precision: updates something unknown")) out = 4711;
  return b->api->emit(b, ENG_OP_SCALE, &out, 1, &out, 1, &factor, 1, error);
}

static eng_status precision_begin(void* self, eng_build* b, const eng_policy_update* u, eng_error* error) {
  eng_id out = u->scalars;
  eng_attr factor = {"factor", 0, 1.0};
  (void)self;
  ENTER("precision.begin");
  if (is("precision: begins with a state")) out = u->states[0];
  return b->api->emit(b, ENG_OP_SCALE, &out, 1, &out, 1, &factor, 1, error);
}

const eng_axis hostile_precision = {sizeof(eng_axis),
                                    0,
                                    create_precision,
                                    destroy,
                                    place_precision,
                                    move_precision,
                                    precision_states,
                                    precision_update,
                                    0,
                                    0,
                                    precision_begin,
                                    NULL};

/* ---- zero ------------------------------------------------------------------------------------------- */

typedef struct parts {
  uint32_t size;
  eng_id part;
} parts;

static eng_status create_zero(const eng_options* options, eng_build* b, void** self, eng_error* error) {
  static const uint32_t same[2] = {0, 0}, outside[2] = {0, 9};
  eng_part part = {sizeof(eng_part), 0, 0, 1};
  parts made = {0, 0}, *kept;
  eng_id id = 0;
  eng_status s;
  take_fault(options);
  ENTER("zero.create");
  if (is("zero: the world into NULL")) return b->api->world(b, NULL, NULL, error);
  if ((s = b->api->world(b, &part.index, &part.count, error)) != ENG_OK) return s;
  made.size = part.count;
  if (is("zero: a group of nobody")) b->api->group(b, NULL, 0, &id, NULL);
  if (is("zero: a group without list")) b->api->group(b, NULL, 2, &id, NULL);
  if (is("zero: a group of twice the same")) b->api->group(b, same, 2, &id, NULL);
  if (is("zero: a group of a stranger")) b->api->group(b, outside, 2, &id, NULL);
  if (is("zero: a group into NULL")) b->api->group(b, outside, 1, NULL, NULL);
  if (is("zero: no part")) b->api->part(b, NULL, &id, NULL);
  if (is("zero: a part beyond the last")) part.index = part.count;
  if (is("zero: a part of none")) part.count = 0;
  if (is("zero: a part of an unknown group")) part.group = 9;
  if (is("zero: a part in a small struct")) part.struct_size = 8;
  if (is("zero: a part into NULL")) b->api->part(b, &part, NULL, NULL);
  if (is("zero: an op")) eng_scale(b, 1, 2.0);
  if (is("fail comm.group") || is("mute comm.group")) b->api->group(b, &part.index, 1, &id, NULL);
  b->api->part(b, &part, &made.part, NULL);
  if (is("zero: says ENG_OK after an error")) {
    b->api->part(b, NULL, &id, NULL);
  } else if ((s = b->api->status(b, error)) != ENG_OK) {
    return s;
  }
  if (!(kept = malloc(sizeof *kept))) return ENG_NO_MEMORY;
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static eng_status place_zero(void* self, const eng_unit* unit, int32_t role, eng_view* io, eng_error* error) {
  (void)unit;
  ENTER("zero.place");
  io->part = role == ENG_ROLE_PARTIAL || role == ENG_ROLE_ACT ? 0 : ((const parts*)self)->part;
  if (is("zero: an unknown part")) io->part = 4711;
  if (is("zero: another type")) io->dtype = ENG_BF16;
  if (is("zero: another length")) io->count = 1;
  return ENG_OK;
}

static eng_status move_zero(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const parts* p = self;
  const int sums = m->role == ENG_ROLE_GRAD && m->from->part == 0;
  eng_attr group = {"group", 1, 0}, rows = {"rows", 0, 0};
  eng_id out = m->dst, other = 0, in = m->src;
  eng_desc d;
  ENTER("zero.move");
  rows.i = p->size;
  if (is("zero: moves nothing")) return ENG_OK;
  if (is("zero: moves nothing of the sum") && sums) return ENG_OK;
  if (is("zero: moves aside")) out = 0;
  if (is("zero: moves a half") && !sums) {
    b->api->shape(b, m->src, &d, NULL);
    b->api->slice(b, m->src, 0, (uint64_t)d.dims[0] / 2, &in, NULL);
    b->api->shape(b, m->dst, &d, NULL);
    b->api->slice(b, m->dst, 0, (uint64_t)d.dims[0] / 2, &out, NULL);
  }
  if (is("zero: writes the source")) {
    const eng_attr factor = {"factor", 0, 2.0};
    out = m->src;
    b->api->emit(b, ENG_OP_SCALE, &in, 1, &out, 1, &factor, 1, NULL);
    out = m->dst;
  }
  if (is("zero: an unknown group")) group.i = 5;
  if (is("zero: a huge group")) group.i = INT64_MAX;
  if (is("zero: no group")) group.key = "grp";
  if (is("zero: an unknown value")) in = 4711;
  if (is("zero: no value")) in = 0;
  if (is("zero: a slice outside")) b->api->slice(b, m->dst, UINT64_MAX, 2, &other, NULL);
  if (is("zero: a slice of nothing")) b->api->slice(b, m->dst, 0, 0, &out, NULL);
  if (is("zero: a slice into NULL")) b->api->slice(b, m->dst, 0, 1, NULL, NULL);
  if (is("zero: a group in a move")) b->api->group(b, &p->size, 1, &other, NULL);
  if (is("zero: a part in a move")) b->api->part(b, NULL, &other, NULL);
  if (is("zero: rows of nothing")) rows.i = 0;
  if (is("zero: negative rows")) rows.i = -2;
  if (sums) {
    b->api->emit(b, ENG_OP_ALL_TO_ALL, &in, 1, &other, 1, &group, 1, NULL);
    b->api->emit(b, ENG_OP_FOLD, &other, 1, &out, 1, &rows, 1, NULL);
  } else {
    b->api->emit(b, ENG_OP_ALL_GATHER, &in, 1, &out, 1, &group, 1, NULL);
  }
  return b->api->status(b, error);
}

const eng_axis hostile_zero = {
    sizeof(eng_axis), 0, create_zero, free, place_zero, move_zero, NULL, NULL, 0, 0, NULL, NULL};
