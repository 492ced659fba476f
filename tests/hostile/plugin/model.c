/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding - layer - layer - head,   layer: x + pass(x w^T) */
#include "hostile.h"

typedef struct hostile {
  int64_t vocabulary;
} hostile;

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  hostile* made;
  int64_t n = 0;
  eng_status s;
  take_fault(options);
  ENTER("model.create");
  if ((s = options->get_int(options, "vocab_size", &n, error)) != ENG_OK) return s;
  if (is("options of another type")) return options->get_string(options, "vocab_size", (const char**)self, error);
  if (is("options without a key")) return options->get_int(options, "nothing", &n, error);
  if (is("options into NULL")) return options->get_int(options, "vocab_size", NULL, error);
  if (!(made = malloc(sizeof *made))) return ENG_NO_MEMORY;
  made->vocabulary = n;
  *self = made;
  return ENG_OK;
}

static eng_status describe(void* self, eng_model_info* out, eng_error* error) {
  ENTER("model.describe");
  out->vocabulary = ((const hostile*)self)->vocabulary;
  out->layers = 2;
  if (is("info: vocabulary of 0")) out->vocabulary = 0;
  if (is("info: vocabulary beyond the table")) out->vocabulary = 1000;
  if (is("info: huge vocabulary")) out->vocabulary = INT64_MAX;
  if (is("info: negative layers")) out->layers = -3;
  if (is("info: negative width")) out->attention_width = INT64_MIN;
  if (is("info: negative length")) out->max_length = -1;
  return ENG_OK;
}

static eng_id matrix(eng_build* b, const char* name, int64_t rows) {
  static char long_name[1u << 20];
  eng_attr init[2] = {{"mean", 0, 0.0}, {"std", 0, 0.25}};
  int64_t dims[7] = {0, width, 1, 1, 1, 1, 1};
  eng_param p = {sizeof(eng_param), 0, name, ENG_OP_INIT_NORMAL, NULL, NULL, 2, 2};
  eng_id out = 0;
  dims[0] = rows, p.init = init, p.dims = dims;
  if (strcmp(name, "layer.0") == 0) {
    if (is("param: no dims")) p.dims = NULL;
    if (is("param: no attributes")) p.init = NULL;
    if (is("param: attribute without key")) init[0].key = NULL;
    if (is("param: no name")) p.name = NULL;
    if (is("param: empty name")) p.name = "";
    if (is("param: odd name")) p.name = "layer\xff\x01\n.0";
    if (is("param: long name")) {
      memset(long_name, 'n', sizeof long_name - 1);
      p.name = long_name;
    }
    if (is("param: twice")) p.name = "embedding";
    if (is("param: 7 dimensions")) p.ndim = 7;
    if (is("param: a billion dimensions")) p.ndim = 1000000000;
    if (is("param: negative")) dims[0] = -4;
    if (is("param: huge")) dims[0] = dims[1] = INT64_C(1) << 40;
    if (is("param: hardly countable")) dims[0] = INT64_C(1) << 40, dims[1] = INT64_C(1) << 22;
    if (is("param: an exabyte")) dims[0] = INT64_C(1) << 40, dims[1] = INT64_C(1) << 17;
    if (is("param: petabytes")) dims[0] = INT64_C(1) << 40, dims[1] = INT64_C(1) << 10;
    if (is("param: small struct")) p.struct_size = 8;
    if (is("param: struct of nothing")) p.struct_size = 0;
    if (is("param: larger struct")) p.struct_size = sizeof p + 8;
    if (is("param: filled by a linear")) p.init_op = ENG_OP_LINEAR;
    if (is("param: filled by an update")) p.init_op = ENG_OP_ADAMW;
    if (is("param: filled by nobody")) p.init_op = NULL;
    if (is("param: filled by own op")) p.init_op = OP_FILL;
    if (is("param: NULL")) return b->api->param(b, NULL, &out, NULL), 0;
    if (is("param: into NULL")) return b->api->param(b, &p, NULL, NULL), 0;
  }
  b->api->param(b, &p, &out, NULL);
  return out;
}

static eng_status declare(void* self, eng_build* b, eng_error* error) {
  const hostile* m = self;
  eng_id ids[4];
  uint32_t rank, size;
  eng_desc d;
  ENTER("model.declare");
  if (is("declare: nothing")) return ENG_OK;
  if (is("declare: an op")) eng_scale(b, 1, 2.0);
  if (is("declare: the batch")) b->api->batch(b, "tokens", ids, NULL);
  if (is("declare: the world")) b->api->world(b, &rank, &size, NULL);
  ids[0] = matrix(b, "embedding", m->vocabulary);
  ids[1] = matrix(b, "layer.0", width);
  ids[2] = matrix(b, "layer.1", width);
  ids[3] = matrix(b, "head", m->vocabulary);
  if (is("declare: shape into NULL")) b->api->shape(b, ids[0], NULL, NULL);
  if (is("declare: shape of nothing")) b->api->shape(b, 4711, &d, NULL);
  if (is("declare: no blocks")) return b->api->status(b, error);
  if (is("block: no list")) b->api->block(b, "embedding", 0, NULL, 1, NULL);
  if (is("block: unknown parameter")) ids[0] = 99;
  b->api->block(b, is("block: no name") ? NULL : is("block: odd name") ? "em\xff\n" : "embedding", 0, ids, 1, NULL);
  b->api->block(b, "layer.0", 1, ids + 1, 1, NULL);
  b->api->block(b, "layer.1", 1, ids + 2, 1, NULL);
  if (!is("block: a parameter of none")) b->api->block(b, "head", 2, ids + 3, 1, NULL);
  if (is("declare: says ENG_OK after an error")) {
    b->api->block(b, "late", 3, ids + 3, UINT32_MAX >> 31, NULL);
    b->api->batch(b, "tokens", ids, NULL);
    return ENG_OK;
  }
  if (is("block: long name")) {
    static char name[1u << 20];
    memset(name, 'n', sizeof name - 1);
    b->api->block(b, name, 2, ids + 3, 1, NULL);
  }
  return b->api->status(b, error);
}

/* The fault of layer.0; the value that stands for its product. */
static eng_id meddle(eng_build* b, eng_id x, eng_id w) {
  static const float table[4] = {1, 2, 3, 4};
  const eng_build_api* api = b->api;
  eng_id in[5] = {0}, out[20] = {0};
  eng_attr attrs[2] = {{"factor", 0, 2.0}, {"group", 1, 0}};
  eng_desc d = {ENG_F32, 1, {4, 0, 0, 0, 0, 0}};
  uint32_t rank = 0, size = 0;
  eng_part part = {sizeof(eng_part), 1, 0, 1};
  in[0] = x, in[1] = w, in[2] = x, in[3] = x, in[4] = x;
  if (is("trace: a parameter")) return matrix(b, "late", 4);
  if (is("trace: a block")) api->block(b, "late", 7, NULL, 0, NULL);
  if (is("trace: the world")) api->world(b, &rank, &size, NULL);
  if (is("trace: a group")) api->group(b, &rank, 1, out, NULL);
  if (is("trace: a part")) api->part(b, &part, out, NULL);
  if (is("trace: a slice")) api->slice(b, x, 0, 1, out, NULL);
  if (is("trace: no op")) api->emit(b, NULL, in, 1, out, 1, NULL, 0, NULL);
  if (is("trace: unknown op")) api->emit(b, "org.example.\xff/1", in, 1, out, 1, NULL, 0, NULL);
  if (is("trace: an op of an unused file")) api->emit(b, "eng.mamba.scan/1", in, 1, out, 1, NULL, 0, NULL);
  if (is("trace: no inputs")) api->emit(b, ENG_OP_ADD, NULL, 2, out, 1, NULL, 0, NULL);
  if (is("trace: no outputs")) api->emit(b, ENG_OP_ADD, in, 2, NULL, 1, NULL, 0, NULL);
  if (is("trace: no attributes")) api->emit(b, ENG_OP_SCALE, in, 1, out, 1, NULL, 1, NULL);
  if (is("trace: an attribute without key")) {
    attrs[0].key = NULL;
    api->emit(b, ENG_OP_SCALE, in, 1, out, 1, attrs, 1, NULL);
  }
  if (is("trace: too many outputs of an op")) api->emit(b, ENG_OP_ADD, in, 2, out, 20, NULL, 0, NULL);
  if (is("trace: all_to_all")) api->emit(b, ENG_OP_ALL_TO_ALL, in, 1, out, 1, attrs + 1, 1, NULL);
  if (is("trace: all_reduce")) api->emit(b, ENG_OP_ALL_REDUCE, in, 1, out, 1, attrs + 1, 1, NULL);
  if (is("trace: an update")) api->emit(b, ENG_OP_ADAMW, in, 5, out, 3, NULL, 0, NULL);
  if (is("trace: an init op")) api->emit(b, ENG_OP_INIT_NORMAL, NULL, 0, out, 1, NULL, 0, NULL);
  if (is("trace: the batch of nothing")) api->batch(b, NULL, out, NULL);
  if (is("trace: the batch into NULL")) api->batch(b, "tokens", NULL, NULL);
  if (is("trace: a constant of nothing")) api->constant(b, NULL, table, out, NULL);
  if (is("trace: a constant without data")) api->constant(b, &d, NULL, out, NULL);
  if (is("trace: a constant into NULL")) api->constant(b, &d, table, NULL, NULL);
  if (is("trace: a constant of 9 dimensions")) d.ndim = 9, api->constant(b, &d, table, out, NULL);
  if (is("trace: a negative constant")) d.dims[0] = -1, api->constant(b, &d, table, out, NULL);
  if (is("trace: a constant of bytes")) d.dtype = ENG_U8, api->constant(b, &d, table, out, NULL);
  if (is("trace: a row of a single number")) {
    d.ndim = 0;
    api->constant(b, &d, table, out, NULL);
    in[0] = out[0], out[0] = 0;
    api->emit(b, ENG_OP_GET_ROW, in, 2, out, 1, NULL, 0, NULL);
    return out[0];
  }
  return eng_linear(b, x, w, 0);
}

static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* params, uint32_t n_params,
                        const eng_id* in, uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  eng_id batch = 0, x;
  eng_status s;
  (void)self, (void)n_params, (void)n_in, (void)cap;
  if (tmpl == 1) ENTER("model.trace");
  if (tmpl == 0) {
    b->api->batch(b, "tokens", &batch, NULL);
    x = eng_embedding(b, batch, params[0]);
  } else if (tmpl == 2) {
    b->api->batch(b, "labels", &batch, NULL);
    x = eng_cross_entropy(b, in[0], params[0], batch);
    if (is("trace: a loss of many")) x = in[0];
    if (is("trace: no loss")) x = eng_scale(b, x, 1.0);
  } else {
    const eng_id made = meddle(b, in[0], params[0]);
    x = eng_add(b, in[0], eng_emit1(b, OP_PASS, &made, 1, NULL, 0));
  }
  if (is("trace: says ENG_OK after an error")) {
    eng_emit1(b, "nothing/1", &x, 1, NULL, 0);
  } else if ((s = b->api->status(b, error)) != ENG_OK) {
    return s;
  }
  if (tmpl == 1) {
    if (is("trace: writes nothing")) return ENG_OK;
    if (is("trace: output 0")) x = 0;
    if (is("trace: unknown output")) x = 4711;
    if (is("trace: 9 outputs")) return *n_out = 9, ENG_OK;
    if (is("trace: 4 billion outputs")) return *n_out = UINT32_MAX, ENG_OK;
    if (is("trace: a parameter as output")) x = params[0];
  }
  out[0] = x, *n_out = 1;
  return ENG_OK;
}

const eng_model hostile_model = {sizeof(eng_model), 0, create, free, describe, declare, trace};
