/* SPDX-License-Identifier: Apache-2.0
 *
 * A source with fields of its own and a model that reads them, compiled against abi/ alone. The source gives each token
 * a score (f32) and a group (i32) beside the documents of a sample; the model weights its loss by the score and adds a
 * vector of the group. `fault` names one thing that the source does wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data.h"
#include "engine/model.h"
#include "engine/ops.h"
#include "engine/plugin.h"

#define SCORE "org.example.score"
#define GROUP "org.example.group"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.scored'\n"
  "name = 'Scored'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'a source with fields of its own, and a model that reads them'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_DATA_KIND "'\n"
  "name = 'scored'\n"
  "\n"
  "[provides.options]\n"
  "provides = { type = 'strings', default = [], help = 'the fields beside tokens and labels' }\n"
  "score = { type = 'float', default = 0.0, help = 'of every token; 0: they differ' }\n"
  "fault = { type = 'string', default = '', help = 'what is done wrong' }\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_MODEL_DRAFT "'\n"
  "name = 'scored'\n"
  "\n"
  "[provides.options]\n"
  "vocab_size = { type = 'int', default = 48, min = 1, help = 'token ids are below this' }\n"
  "hidden_size = { type = 'int', default = 32, min = 1, help = 'features of the stream' }\n"
  "weights = { type = 'string', default = '" SCORE "', help = 'the field by which the loss is weighted' }\n"
  "groups = { type = 'int', default = 0, min = 0, help = 'rows of the table for the field of groups; 0: none' }\n")
/* clang-format on */

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

/* ---- the source ------------------------------------------------------------------------------------- */

enum { most = 8 };

typedef struct source {
  int64_t length, vocabulary;
  double score;
  char fault[32], names[most][64];
  uint32_t n;
} source;

static eng_status fields(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error) {
  static const eng_field known[] = {{ENG_FIELD_SEGMENTS, ENG_I32, 0},
                                    {ENG_FIELD_POSITIONS, ENG_I32, 0},
                                    {ENG_FIELD_LOSS_WEIGHTS, ENG_F32, 0},
                                    {SCORE, ENG_F32, 0},
                                    {GROUP, ENG_I32, 0}};
  const char *name = NULL, *fault = NULL;
  uint32_t k, at, count = 0;
  eng_status s = options->get_count(options, "provides", &count, error);
  if (s == ENG_OK) s = options->get_string(options, "fault", &fault, error);
  if (s != ENG_OK) return s;
  *n = 0;
  for (k = 0; k < count && *n < cap; ++k) {
    if ((s = options->get_string_at(options, "provides", k, &name, error)) != ENG_OK) return s;
    for (at = 0; at < 5; ++at)
      if (!strcmp(known[at].name, name)) out[(*n)++] = known[at];
  }
  if (!strcmp(fault, "twice") && *n) out[*n] = out[0], ++*n;
  if (!strcmp(fault, "labels")) out[*n].name = ENG_FIELD_LABELS, out[(*n)++].dtype = ENG_I32;
  if (!strcmp(fault, "no name")) out[(*n)++].dtype = ENG_I32;
  if (!strcmp(fault, "a name of two words")) out[*n].name = "two words", out[(*n)++].dtype = ENG_I32;
  if (!strcmp(fault, "f64") && *n) out[0].dtype = ENG_F64;
  if (!strcmp(fault, "i32") && *n) out[0].dtype = ENG_I32;
  if (!strcmp(fault, "f32") && *n) out[0].dtype = ENG_F32;
  if (!strcmp(fault, "many")) *n = cap + 1;
  if (!strcmp(fault, "refuses")) return fail(error, ENG_INVALID, "nothing can be provided today");
  return ENG_OK;
}

static eng_status create_source(const eng_options* options, const eng_data_request* request, void** out,
                                eng_error* error) {
  source* self = calloc(1, sizeof *self);
  const char* fault = "";
  uint32_t k;
  if (!self) return fail(error, ENG_NO_MEMORY, "out of memory");
  options->get_string(options, "fault", &fault, NULL);
  options->get_float(options, "score", &self->score, NULL);
  strncpy(self->fault, fault, sizeof self->fault - 1);
  self->length = request->sequence_length;
  self->vocabulary = request->vocabulary;
  self->n = request->n_fields;
  for (k = 0; k < self->n && k < most; ++k) strncpy(self->names[k], request->fields[k].name, 63);
  *out = self;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status describe_source(void* self, eng_data_info* out, eng_error* error) {
  const source* s = self;
  (void)error;
  out->train_samples = 64;
  out->validation_samples = 8;
  out->vocabulary = s->vocabulary;
  memcpy(out->content_hash, "0123456789abcdef", 17);
  return ENG_OK;
}

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

/* Documents of 1 to 5 tokens until the sample is full; the last position is padding. */
static eng_status read_sample(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  const source* s = self;
  int32_t *tokens = values[0], *labels = values[1], segment = 0, at = 0, left;
  uint64_t state = mix(position * 2 + (uint64_t)split + 1);
  int64_t t;
  uint32_t k;
  (void)error;
  left = 1 + (int32_t)(state % 5);
  for (t = 0; t < s->length; ++t, ++at, --left) {
    const int padding = t + 1 == s->length;
    state = mix(state + 1);
    if (left == 0 || padding) left = 1 + (int32_t)((state >> 8) % 5), at = 0, ++segment;
    tokens[t] = (int32_t)((state >> 20) % (uint64_t)s->vocabulary);
    labels[t] = ENG_IGNORE_LABEL;
    if (t > 0 && at > 0) labels[t - 1] = tokens[t];
    for (k = 2; k < s->n && k < most; ++k) {
      int32_t* i = values[k];
      float* f = values[k];
      if (!strcmp(s->names[k], ENG_FIELD_SEGMENTS)) i[t] = padding ? ENG_PADDING_SEGMENT : segment;
      if (!strcmp(s->names[k], ENG_FIELD_POSITIONS)) i[t] = at;
      if (!strcmp(s->names[k], GROUP)) i[t] = (int32_t)(t % 3);
      if (!strcmp(s->names[k], ENG_FIELD_LOSS_WEIGHTS) || !strcmp(s->names[k], SCORE))
        f[t] = s->score != 0 ? (float)s->score : (float)(1 + t % 4) / 4;
      if (t != 3) continue;
      if (!strcmp(s->names[k], ENG_FIELD_SEGMENTS) && !strcmp(s->fault, "segment")) i[t] = -2;
      if (!strcmp(s->names[k], ENG_FIELD_POSITIONS) && !strcmp(s->fault, "position")) i[t] += 1;
      if (!strcmp(s->names[k], GROUP) && !strcmp(s->fault, "group")) i[t] = 3;
      if (!strcmp(s->names[k], ENG_FIELD_LOSS_WEIGHTS) && !strcmp(s->fault, "weight")) f[t] = -1;
      if (!strcmp(s->names[k], ENG_FIELD_LOSS_WEIGHTS) && !strcmp(s->fault, "NaN")) f[t] = NAN;
      if (!strcmp(s->fault, "unwritten")) memset(i, 0xff, (size_t)s->length * sizeof *i);
    }
  }
  if (!strcmp(s->fault, "label")) labels[s->length - 1] = 0;
  return ENG_OK;
}

static const eng_data data = {.struct_size = sizeof(eng_data),
                              .create = create_source,
                              .destroy = destroy,
                              .describe = describe_source,
                              .read = read_sample,
                              .fields = fields};

/* ---- the model -------------------------------------------------------------------------------------- */

typedef struct scored {
  int64_t vocabulary, hidden, groups;
  char weights[64];
} scored;

static eng_status create_model(const eng_options* options, void** out, eng_error* error) {
  scored* self = calloc(1, sizeof *self);
  const char* weights = "";
  eng_status s;
  if (!self) return fail(error, ENG_NO_MEMORY, "out of memory");
  s = options->get_int(options, "vocab_size", &self->vocabulary, error);
  if (s == ENG_OK) s = options->get_int(options, "hidden_size", &self->hidden, error);
  if (s == ENG_OK) s = options->get_int(options, "groups", &self->groups, error);
  if (s == ENG_OK) s = options->get_string(options, "weights", &weights, error);
  strncpy(self->weights, weights, sizeof self->weights - 1);
  if (s == ENG_OK)
    *out = self;
  else
    free(self);
  return s;
}

static eng_status describe_model(void* self, eng_model_info* out, eng_error* error) {
  const scored* m = self;
  (void)error;
  out->vocabulary = m->vocabulary;
  out->layers = 1;
  return ENG_OK;
}

static eng_id matrix(eng_build* b, const char* name, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  const eng_attr normal[2] = {{"mean", 0, 0.0}, {"std", 0, 0.2}};
  const eng_param p = {sizeof(eng_param), 0, name, ENG_OP_INIT_NORMAL, normal, dims, 2, 2};
  eng_id id = 0;
  b->api->param(b, &p, &id, NULL);
  return id;
}

static eng_status declare(void* self, eng_build* b, eng_error* error) {
  const scored* m = self;
  eng_id params[2] = {0, 0};
  params[0] = matrix(b, "words", m->vocabulary, m->hidden);
  if (m->groups) params[1] = matrix(b, "groups", m->groups, m->hidden);
  b->api->block(b, "embed", 0, params, m->groups ? 2 : 1, NULL);
  params[0] = matrix(b, "head", m->vocabulary, m->hidden);
  b->api->block(b, "head", 1, params, 1, NULL);
  return b->api->status(b, error);
}

static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* p, uint32_t n_p, const eng_id* in,
                        uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  const scored* m = self;
  eng_id batch = 0, more = 0;
  (void)n_p, (void)n_in, (void)cap;
  *n_out = 1;
  b->api->batch(b, tmpl ? ENG_FIELD_LABELS : ENG_FIELD_TOKENS, &batch, NULL);
  if (tmpl) {
    if (m->weights[0]) b->api->batch(b, m->weights, &more, NULL);
    out[0] = eng_language_loss(b, in[0], p[0], batch, more, 0.0);
    return b->api->status(b, error);
  }
  out[0] = eng_embedding(b, batch, p[0]);
  if (m->groups) {
    b->api->batch(b, GROUP, &more, NULL);
    out[0] = eng_add(b, out[0], eng_embedding(b, more, p[1]));
  }
  return b->api->status(b, error);
}

static const eng_model model = {sizeof(eng_model), 0, create_model, destroy, describe_model, declare, trace};

/* ---- the way in ------------------------------------------------------------------------------------- */

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(name, "scored")) return NULL;
  return !strcmp(kind, ENG_DATA_KIND) ? (const void*)&data : !strcmp(kind, ENG_MODEL_KIND) ? (const void*)&model : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
