/* SPDX-License-Identifier: Apache-2.0
 *
 * A data source: a pure function from (split, position) to one sample. So a run is resumed from its position alone, and
 * nothing is kept from one sample to the next. Every sample counts upwards from another number; now and then it jumps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.my_thing'\n"
    "name = 'my_thing'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a data source'\n"
    "[[provides]]\n"
    "kind = 'eng.data/1'\n"
    "name = 'my_thing'\n"
    "summary = 'numbers in order, with jumps'\n"
    "[provides.options]\n"
    "samples = { type = 'int', default = 4096, min = 1, max = 1e9, help = 'distinct samples of one epoch' }\n"
    "jumps = { type = 'float', default = 0.05, min = 0, max = 1, help = 'how often the next number is any number' }\n")

typedef struct source {
  uint64_t seed, samples, vocabulary, limit; /* a random word below `limit` makes a jump */
  int64_t length;                            /* T */
} source;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  source made, *kept;
  int64_t samples = 0;
  double jumps = 0;
  eng_status s = options->get_int(options, "samples", &samples, error);
  if (s == ENG_OK) s = options->get_float(options, "jumps", &jumps, error);
  if (s != ENG_OK) return s;
  made.seed = request->seed;
  made.samples = (uint64_t)samples;
  made.vocabulary = (uint64_t)request->vocabulary;
  made.limit = (uint64_t)(jumps * 4294967296.0);
  made.length = request->sequence_length;
  kept = malloc(sizeof *kept);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *kept = made;
  *self = kept;
  return ENG_OK;
}

static void destroy(void* self) {
  free(self);
}

/* The hash is equal if and only if the data is equal: a run is not resumed with other data. */
static eng_status describe_data(void* self, eng_data_info* out, eng_error* error) {
  const source* me = self;
  (void)error;
  out->tokens = me->samples * (uint64_t)me->length;
  out->train_samples = me->samples;
  out->validation_samples = 8;
  out->vocabulary = (int64_t)me->vocabulary;
  snprintf(out->content_hash, sizeof out->content_hash, "%08" PRIx64 "%08" PRIx64 "%016" PRIx64, me->vocabulary,
           me->samples, me->limit);
  return ENG_OK;
}

/* A word that depends on its three arguments alone, well mixed (Steele et al. 2014). */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t z = (a * 0x9e3779b97f4a7c15u) ^ (b + 0xbf58476d1ce4e5b9u) * 0x94d049bb133111ebu ^ c;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* values[0] are T tokens, values[1] T labels: the fields that every run reads. */
static eng_status read_sample(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  int32_t *tokens = values[0], *labels = values[1];
  const source* me = self;
  /* Held-out samples have numbers of their own. In every epoch the training samples are in another order. */
  const uint64_t sample = split == ENG_SPLIT_TRAIN ? (position + position / me->samples * 7919) % me->samples
                                                   : UINT64_C(1) << 40 | position;
  uint64_t number = mix(me->seed, sample, 0) % me->vocabulary;
  int64_t t;
  (void)error;
  for (t = 0; t < me->length; ++t) {
    const uint64_t word = mix(me->seed, sample, (uint64_t)t + 1);
    tokens[t] = (int32_t)number;
    number = (word & 0xffffffff) < me->limit ? (word >> 32) % me->vocabulary : (number + 1) % me->vocabulary;
    labels[t] = (int32_t)number; /* the token after tokens[t] */
  }
  return ENG_OK;
}

static const eng_data table = {.struct_size = sizeof(eng_data),
                               .minor = ENG_ABI_MINOR,
                               .create = create,
                               .destroy = destroy,
                               .describe = describe_data,
                               .read = read_sample}; /* the rest is NULL: nothing is slow, no files, no other fields */

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_DATA_KIND) && !strcmp(name, "my_thing") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
