/* SPDX-License-Identifier: Apache-2.0
 *
 * A data source in one C99 file: every sample counts upwards from another number.
 * docs/writing-a-plugin.md explains it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.counting'\n"
    "name = 'Counting'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an example'\n"
    "[[provides]]\n"
    "kind = 'eng.data/1'\n"
    "name = 'counting'\n"
    "summary = 'numbers in order, modulo the vocabulary'\n"
    "[provides.options]\n"
    "by = { type = 'int', default = 1, min = 1, max = 1000, help = 'difference between two neighbours' }\n")

typedef struct counting {
  uint64_t seed, vocabulary, by;
  int64_t length; /* T */
} counting;

static eng_status fail(eng_error* error, eng_status code, const char* text) {
  if (error) error->set(error, code, text, strlen(text));
  return code;
}

static eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  counting* made;
  int64_t by = 0;
  eng_status status = options->get_int(options, "by", &by, error);
  if (status != ENG_OK) return status;
  if (by % request->vocabulary == 0)
    return fail(error, ENG_INVALID, "by is a multiple of the vocabulary: every token would be the same");
  made = malloc(sizeof(*made));
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->seed = request->seed;
  made->vocabulary = (uint64_t)request->vocabulary;
  made->by = (uint64_t)by;
  made->length = request->sequence_length;
  *self = made;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

static eng_status describe_data(void* self, eng_data_info* out, eng_error* error) {
  const counting* me = self;
  (void)error;
  out->files = 0;
  out->tokens = me->vocabulary;
  out->train_samples = me->vocabulary; /* one for every starting number */
  out->validation_samples = 0;
  out->vocabulary = (int64_t)me->vocabulary;
  snprintf(out->content_hash, sizeof(out->content_hash), "%016" PRIx64 "%016" PRIx64, me->vocabulary, me->by);
  return ENG_OK;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
  while (b) {
    uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The number from which sample `position` starts. Each occurs once per epoch; seed and epoch determine the order. */
static uint64_t first(const counting* me, uint64_t position) {
  uint64_t n = me->vocabulary, epoch = position / n, stride;
  stride = 1 + (me->seed + epoch) * 2654435761u % n;
  while (common_divisor(stride, n) != 1) ++stride;
  return (position % n * stride + epoch) % n;
}

static eng_status read_sample(void* self, int32_t split, uint64_t position, int32_t* tokens, int32_t* labels,
                              eng_error* error) {
  const counting* me = self;
  uint64_t number = first(me, position);
  int64_t t;
  if (split != ENG_SPLIT_TRAIN) return fail(error, ENG_OUT_OF_RANGE, "nothing is held out");
  for (t = 0; t < me->length; ++t) {
    tokens[t] = (int32_t)number;
    number = (number + me->by) % me->vocabulary;
    labels[t] = (int32_t)number;
  }
  return ENG_OK;
}

static const eng_data table = {.struct_size = sizeof(eng_data),
                               .minor = ENG_ABI_MINOR,
                               .create = create,
                               .destroy = destroy,
                               .describe = describe_data,
                               .read = read_sample}; /* build and inspect are NULL */

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  if (strcmp(kind, ENG_DATA_KIND) == 0 && strcmp(name, "counting") == 0) return &table;
  return NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, .describe = describe, .start = start, .stop = stop,
                                  .get_interface = get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
