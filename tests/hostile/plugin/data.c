/* SPDX-License-Identifier: Apache-2.0
 *
 * A source that counts by threes, and a tokenizer of bytes. */
#include "hostile.h"

static char object;

static void destroy(void* self) {
  (void)self;
}

/* ---- data ------------------------------------------------------------------------------------------- */

static int64_t length;

static eng_status create(const eng_options* options, const eng_data_request* request, void** self, eng_error* error) {
  take_fault(options);
  ENTER("data.create");
  length = request->sequence_length;
  *self = &object;
  return ENG_OK;
}

static eng_status describe(void* self, eng_data_info* out, eng_error* error) {
  (void)self;
  ENTER("data.describe");
  out->files = 1, out->tokens = 256 * 16, out->train_samples = 200, out->validation_samples = 56;
  out->vocabulary = vocabulary;
  memcpy(out->content_hash, "0123456789abcdef", 17);
  if (is("data: no samples")) out->train_samples = out->validation_samples = 0;
  if (is("data: a hash without end")) memset(out->content_hash, 'a', sizeof out->content_hash);
  if (is("data: an empty hash")) out->content_hash[0] = 0;
  if (is("data: an odd hash")) memcpy(out->content_hash, "\xff\n\"", 4);
  if (is("data: does not describe")) memset((char*)out + 8, 0, sizeof *out - 8);
  if (is("data: countless samples")) out->train_samples = out->validation_samples = UINT64_MAX;
  return ENG_OK;
}

static eng_status read(void* self, int32_t split, uint64_t position, void* const* values, eng_error* error) {
  int32_t *tokens = values[0], *labels = values[1];
  int64_t t;
  (void)self;
  ENTER("data.read");
  if (position > 2) ENTER("data.read later");
  if (split == ENG_SPLIT_VALIDATION) ENTER("data.read held out");
  if (is("data: reads nothing")) return ENG_OK;
  for (t = 0; t < length; ++t) {
    tokens[t] = (int32_t)((position + 3 * (uint64_t)t) % vocabulary);
    labels[t] = (int32_t)((position + 3 * (uint64_t)t + 3) % vocabulary);
  }
  if (is("data: no labels")) memset(labels, 0xff, (size_t)length * sizeof *labels);
  if (is("data: all ignored"))
    for (t = 0; t < length; ++t) labels[t] = ENG_IGNORE_LABEL;
  if (is("data: a large token")) tokens[length - 1] = vocabulary;
  if (is("data: a huge token")) tokens[0] = INT32_MAX;
  if (is("data: a negative token")) tokens[1] = -1;
  if (is("data: a large label")) labels[length - 1] = vocabulary;
  if (is("data: a negative label")) labels[0] = INT32_MIN;
  if (is("data: reads half"))
    for (t = length / 2; t < length; ++t) tokens[t] = -1, labels[t] = INT32_MIN;
  return ENG_OK;
}

static eng_status build(const eng_options* options, const eng_data_request* request, const eng_data_watch* watch,
                        eng_data_built* out, eng_error* error) {
  (void)request;
  take_fault(options);
  ENTER("data.build");
  if (watch) watch->report(watch, is("data: reports more than all") ? 100 : 1, 1, 1);
  if (watch && is("data: reports of nothing")) watch->report(watch, 0, 0, UINT64_MAX);
  if (is("data: a path without end")) memset(out->path, 'p', sizeof out->path);
  return ENG_OK;
}

static eng_status inspect(const char* path, uint32_t flags, char* text, uint64_t capacity, uint64_t* size,
                          eng_error* error) {
  const char* name = strrchr(path, '/');
  (void)flags;
  set_fault(name ? name + 1 : path);
  ENTER("data.inspect");
  *size = 11;
  if (capacity >= 11) memcpy(text, "name: file\n", 11);
  if (is("inspect larger")) *size = capacity + 1000;
  if (is("inspect huge")) *size = UINT64_MAX;
  return ENG_OK;
}

const eng_data hostile_data = {sizeof(eng_data), 0, create, destroy, describe, read, build, inspect, 0};

/* ---- tokenizer -------------------------------------------------------------------------------------- */

static eng_status open_tokenizer(const eng_options* options, const char* path, void** self, eng_error* error) {
  const char* name = strrchr(path, '/');
  (void)options;
  set_fault(name ? name + 1 : path);
  ENTER("tokenizer.create");
  *self = &object;
  return ENG_OK;
}

static eng_status describe_tokenizer(void* self, eng_tokenizer_info* out, eng_error* error) {
  (void)self;
  ENTER("tokenizer.describe");
  out->vocabulary = vocabulary, out->bos = out->eos = out->eot = -1;
  memcpy(out->content_hash, "bytes", 6);
  if (is("tokenizer: a hash without end")) memset(out->content_hash, 'a', sizeof out->content_hash);
  if (is("tokenizer: no vocabulary")) out->vocabulary = 0;
  if (is("tokenizer: a negative vocabulary")) out->vocabulary = -5;
  if (is("tokenizer: a huge vocabulary")) out->vocabulary = INT64_MAX;
  return ENG_OK;
}

static eng_status encode(void* self, const char* text, uint64_t size, uint32_t flags, int32_t* ids, uint64_t capacity,
                         uint64_t* count, eng_error* error) {
  uint64_t k;
  (void)self, (void)flags;
  ENTER("tokenizer.encode");
  for (k = 0; k < size && k < capacity; ++k) ids[k] = (unsigned char)text[k];
  *count = size;
  if (is("tokenizer: wants more, for ever")) *count = capacity + 1;
  if (is("tokenizer: wants all memory")) *count = UINT64_MAX / 8;
  if (is("tokenizer: wants more than all")) *count = UINT64_MAX;
  if (is("tokenizer: no ids")) *count = 0;
  if (is("tokenizer: a negative id")) ids[0] = -7;
  if (is("tokenizer: a large id")) ids[0] = 70000;
  return ENG_OK;
}

static eng_status decode(void* self, const int32_t* ids, uint64_t count, char* text, uint64_t capacity, uint64_t* size,
                         eng_error* error) {
  uint64_t k;
  (void)self;
  ENTER("tokenizer.decode");
  for (k = 0; k < count && k < capacity; ++k) text[k] = (char)ids[k];
  *size = count;
  if (is("tokenizer: gives more, for ever")) *size = capacity + 1;
  if (is("tokenizer: gives all memory")) *size = UINT64_MAX / 8;
  return ENG_OK;
}

const eng_tokenizer hostile_tokenizer = {sizeof(eng_tokenizer), 0,      open_tokenizer, destroy,
                                         describe_tokenizer,    encode, decode};
