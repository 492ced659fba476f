/* SPDX-License-Identifier: Apache-2.0
 *
 * A model with every oddity that a stranger's may have, compiled against abi/ alone: parameters of two blocks,
 * parameters that no loss depends on, parameters without elements, blocks of nothing else, and a block of none.
 *
 * With `plain` it is the same mathematics without what the loss does not need. Declared last, the rest moves no initial
 * value of the parameters that count. */
#include "engine/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ops.h"
#include "engine/plugin.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'org.example.odd'\n"
  "name = 'Odd'\n"
  "version = '1.0.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'a model with parameters that are tied, unused, or without elements'\n"
  "\n"
  "[[provides]]\n"
  "kind = '" ENG_MODEL_DRAFT "'\n"
  "name = 'odd'\n"
  "\n"
  "[provides.options]\n"
  "vocab_size = { type = 'int', default = 256, min = 1, help = 'token ids are below this' }\n"
  "hidden_size = { type = 'int', default = 40, min = 1, help = 'features of the stream' }\n"
  "tie_word_embeddings = { type = 'bool', default = false, help = 'the head is the embedding' }\n"
  "plain = { type = 'bool', default = false, help = 'only the parameters that the loss needs' }\n")
/* clang-format on */

enum { embed_template, layer_template, pass_template, head_template };
enum { most = 16 };

typedef struct odd {
  int64_t vocabulary, hidden;
  int32_t tied, plain;
} odd;

static eng_status create(const eng_options* options, void** out, eng_error* error) {
  odd* self = malloc(sizeof *self);
  eng_status s = ENG_OK;
  if (!self) return ENG_NO_MEMORY;
  s = options->get_int(options, "vocab_size", &self->vocabulary, error);
  if (s == ENG_OK) s = options->get_int(options, "hidden_size", &self->hidden, error);
  if (s == ENG_OK) s = options->get_bool(options, "tie_word_embeddings", &self->tied, error);
  if (s == ENG_OK) s = options->get_bool(options, "plain", &self->plain, error);
  if (s == ENG_OK)
    *out = self;
  else
    free(self);
  return s;
}

static void destroy(void* self) {
  free(self);
}

static eng_status describe_model(void* self, eng_model_info* out, eng_error* error) {
  const odd* m = self;
  (void)error;
  out->vocabulary = m->vocabulary;
  out->layers = 2;
  return ENG_OK;
}

static eng_id param(eng_build* b, const char* name, int64_t rows, int64_t columns, uint32_t flags) {
  const int64_t dims[2] = {rows, columns};
  const eng_attr normal[2] = {{"mean", 0, 0.0}, {"std", 0, 0.2}};
  const eng_param p = {sizeof(eng_param), flags, name, ENG_OP_INIT_NORMAL, normal, dims, 2, columns < 0 ? 1u : 2u};
  eng_id id = 0;
  b->api->param(b, &p, &id, NULL);
  return id;
}

static eng_id vector(eng_build* b, const char* name, int64_t n) {
  return param(b, name, n, -1, ENG_PARAM_NO_DECAY);
}

static void block(eng_build* b, const char* name, uint32_t tmpl, const eng_id* params, uint32_t n) {
  b->api->block(b, name, tmpl, params, n, NULL);
}

/* Inputs of the loss come first in every list. */
static eng_status declare(void* self, eng_build* b, eng_error* error) {
  const odd* m = self;
  const int64_t h = m->hidden;
  eng_id lists[7][most] = {{0}};
  uint32_t n[7] = {0};
  eng_id shared;
  /* Between the layers are blocks that hand on what they get; with `plain` most of them have no parameters. */
  enum { embed, first, ghosts, empties, loan, second, head };
#define ADD(list, id) (lists[list][n[list]++] = (id))
  ADD(embed, param(b, "words", m->vocabulary, h, 0));
  shared = param(b, "shared", h, h, 0); /* of both layers */
  ADD(first, param(b, "layers.0.weight", h, h, 0));
  ADD(first, vector(b, "layers.0.norm", h));
  ADD(first, shared);
  ADD(second, param(b, "layers.1.weight", h, h, 0));
  ADD(second, vector(b, "layers.1.norm", h));
  ADD(second, shared);
  ADD(head, m->tied ? lists[embed][0] : param(b, "head", m->vocabulary, h, 0));
  ADD(head, vector(b, "norm", h));
  /* The head needs what an earlier block lists, which does not use it and has nothing else. */
  ADD(loan, param(b, "late", h, h, 0));
  ADD(head, lists[loan][0]);
  if (!m->plain) {
    const eng_id unused_in_both = param(b, "unused.both", h, 3, 0);
    ADD(embed, param(b, "empty.embed", 0, h, 0));
    ADD(embed, unused_in_both);
    ADD(embed, vector(b, "unused.embed", h + 1));
    ADD(first, param(b, "layers.0.unused", 3 * h, h + 3, 0));
    ADD(first, param(b, "layers.0.empty", h, 0, ENG_PARAM_NO_DECAY));
    ADD(first, vector(b, "layers.0.unused_bias", 7));
    ADD(second, param(b, "layers.1.unused", 3 * h, h + 3, 0));
    ADD(second, param(b, "layers.1.empty", h, 0, ENG_PARAM_NO_DECAY));
    ADD(second, vector(b, "layers.1.unused_bias", 7));
    ADD(ghosts, param(b, "ghosts.weight", 2 * h, 3 * h, 0)); /* some pieces of nothing that counts */
    ADD(ghosts, vector(b, "ghosts.bias", 3 * h));
    ADD(ghosts, vector(b, "ghosts.empty", 0));
    ADD(ghosts, param(b, "ghosts.fp32", 2, h, ENG_PARAM_FP32));
    ADD(empties, param(b, "empties.weight", 0, h, 0));
    ADD(empties, vector(b, "empties.bias", 0));
    ADD(empties, param(b, "empties.fp32", h, 0, ENG_PARAM_FP32));
    ADD(head, unused_in_both);
    ADD(head, param(b, "empty.fp32", 0, 0, ENG_PARAM_FP32)); /* a unit of its own */
  }
#undef ADD
  block(b, "embed", embed_template, lists[embed], n[embed]);
  block(b, "layers.0", layer_template, lists[first], n[first]);
  block(b, "ghosts", pass_template, lists[ghosts], n[ghosts]);
  block(b, "empties", pass_template + 16, lists[empties], n[empties]);
  block(b, "loan", pass_template + 32, lists[loan], n[loan]);
  block(b, "nothing", pass_template + 48, NULL, 0);
  block(b, "layers.1", layer_template, lists[second], n[second]);
  block(b, "head", head_template, lists[head], n[head]);
  return b->api->status(b, error);
}

static eng_status trace(void* self, eng_build* b, uint32_t tmpl, const eng_id* p, uint32_t n_p, const eng_id* in,
                        uint32_t n_in, eng_id* out, uint32_t cap, uint32_t* n_out, eng_error* error) {
  eng_id batch = 0;
  (void)self, (void)n_p, (void)n_in, (void)cap;
  *n_out = 1;
  if (tmpl == embed_template) {
    b->api->batch(b, "tokens", &batch, NULL);
    out[0] = eng_embedding(b, batch, p[0]);
  } else if (tmpl == layer_template) {
    const eng_id x = eng_linear(b, eng_rms_norm(b, in[0], p[1], 1e-5), p[0], 0);
    out[0] = eng_add(b, in[0], eng_linear(b, eng_activation(b, x, ENG_ACT_SILU), p[2], 0));
  } else if (tmpl == head_template) {
    const eng_id x = eng_rms_norm(b, eng_linear(b, in[0], p[2], 0), p[1], 1e-5);
    b->api->batch(b, "labels", &batch, NULL);
    out[0] = eng_cross_entropy(b, x, p[0], batch);
  } else {
    out[0] = in[0];
  }
  return b->api->status(b, error);
}

static const eng_model model = {sizeof(eng_model), 0, create, destroy, describe_model, declare, trace};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_MODEL_KIND) == 0 && strcmp(name, "odd") == 0 ? &model : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
