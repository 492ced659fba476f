/* SPDX-License-Identifier: Apache-2.0
 *
 * A data source for ABI 1.0: token i of all is i * i modulo the vocabulary. Its table of squares is made on the host's
 * threads, if the host has the extension. The option `weighted` adds a field. */
#include <stdlib.h>
#include <string.h>

#include "engine/data.h"
#include "engine/plugin.h"
#include "engine/threads.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.frozen.squares'\nname = 'Squares'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = 'eng.data/1'\nname = 'squares'\nsummary = 'square numbers, modulo the vocabulary'\n"
  "[provides.options]\n"
  "weighted = { type = 'bool', default = false, help = 'every second position counts half' }\n"
  "scale = { type = 'float', default = 1.0, above = 0.0, help = 'factor of the weights' }\n"
  "word = { type = 'string', default = 'squares', choices = ['squares', 'others'], help = 'read by nothing' }\n")
/* clang-format on */

enum { windows = 64 };
typedef struct squares {
  int64_t length, vocabulary;
  double scale;
  uint32_t n_fields, reserved;
  int32_t* ids; /* one for each number below the vocabulary */
} squares;

static const eng_threads* threads;

static eng_status square(void* data, uint64_t begin, uint64_t end, eng_error* error) {
  const squares* s = data;
  uint64_t i;
  (void)error;
  for (i = begin; i < end; ++i) s->ids[i] = (int32_t)(i * i % (uint64_t)s->vocabulary);
  return ENG_OK;
}

static void destroy(void* self) {
  squares* s = self;
  free(s->ids);
  free(s);
}

static eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  const char* word = NULL;
  squares* made;
  eng_status status = options->get_string(options, "word", &word, error);
  if (status != ENG_OK) return status;
  if (request->n_fields < 2 || strcmp(request->fields[0].name, ENG_FIELD_TOKENS) ||
      strcmp(request->fields[1].name, ENG_FIELD_LABELS))
    return ENG_INTERNAL;
  made = malloc(sizeof(*made));
  if (!made) return ENG_NO_MEMORY;
  made->length = request->sequence_length, made->vocabulary = request->vocabulary;
  made->n_fields = request->n_fields, made->reserved = 0;
  made->ids = malloc((size_t)request->vocabulary * sizeof(*made->ids));
  status = made->ids ? options->get_float(options, "scale", &made->scale, error) : ENG_NO_MEMORY;
  if (status == ENG_OK)
    status = threads ? threads->run(threads, 0, (uint64_t)made->vocabulary, 16, square, made, error)
                     : square(made, 0, (uint64_t)made->vocabulary, error);
  if (status != ENG_OK) {
    destroy(made);
    return status;
  }
  *self = made;
  return ENG_OK;
}

static eng_status describe_data(void* self, eng_data_info* out, eng_error* error) {
  const squares* s = self;
  (void)error;
  out->files = 0;
  out->train_samples = windows, out->validation_samples = 4;
  out->tokens = (windows + 4) * (uint64_t)s->length;
  out->vocabulary = s->vocabulary;
  strcpy(out->content_hash, "5c0a7e5");
  return ENG_OK;
}

/* Validation samples lie behind those of training. */
static eng_status read(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  const squares* s = self;
  const uint64_t v = (uint64_t)s->vocabulary, n = (uint64_t)s->length;
  const uint64_t first = (split == ENG_SPLIT_VALIDATION ? windows + position : position % windows) * n;
  int32_t *tokens = values[0], *labels = values[1];
  uint64_t t;
  (void)error;
  for (t = 0; t < n; ++t) tokens[t] = s->ids[(first + t) % v], labels[t] = s->ids[(first + t + 1) % v];
  if (s->n_fields > 2) {
    float* weights = values[2];
    for (t = 0; t < n; ++t) weights[t] = (float)(t % 2 ? s->scale / 2 : s->scale);
  }
  return ENG_OK;
}

static eng_status fields(const eng_options* options, eng_field* out, uint32_t cap, uint32_t* n, eng_error* error) {
  int32_t weighted = 0;
  eng_status status = options->get_bool(options, "weighted", &weighted, error);
  if (status != ENG_OK) return status;
  if (weighted && cap) out[0].name = ENG_FIELD_LOSS_WEIGHTS, out[0].dtype = ENG_F32, out[0].reserved = 0;
  *n = weighted ? 1 : 0;
  return ENG_OK;
}

static const eng_data table = {.struct_size = sizeof(eng_data),
                               .create = create,
                               .destroy = destroy,
                               .describe = describe_data,
                               .read = read,
                               .fields = fields};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)error;
  threads = host->get_extension(host, ENG_THREADS_EXTENSION);
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_DATA_KIND) || strcmp(name, "squares") ? NULL : &table;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
