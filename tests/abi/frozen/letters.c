/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer for ABI 1.0: id 0 begins a text, id 1 + b is byte b. */
#include <stdlib.h>
#include <string.h>

#include "engine/plugin.h"
#include "engine/tokenizer.h"

/* clang-format off */
ENG_DESCRIPTION(
  "[plugin]\nid = 'org.example.frozen.letters'\nname = 'Letters'\nversion = '1.0'\nlicense = 'Apache-2.0'\n"
  "[[provides]]\nkind = 'eng.tokenizer/1'\nname = 'letters'\nsummary = 'an id for each byte'\n")
/* clang-format on */

static eng_status create(const eng_options* options, const char* path, void** self, eng_error* error) {
  static const char text[] = "letters has no files: its path is \"bytes\"";
  (void)options;
  if (!strcmp(path, "bytes")) {
    *self = NULL;
    return ENG_OK;
  }
  if (error) error->set(error, ENG_NOT_FOUND, text, sizeof(text) - 1);
  return ENG_NOT_FOUND;
}
static void destroy(void* self) {
  (void)self;
}
static eng_status describe_ids(void* self, eng_tokenizer_info* out, eng_error* error) {
  (void)self, (void)error;
  out->vocabulary = 257;
  out->bos = 0, out->eos = -1, out->eot = -1;
  strcpy(out->content_hash, "1e77e5");
  return ENG_OK;
}
static eng_status encode(void* self, const char* text, uint64_t size, uint32_t flags, int32_t* ids, uint64_t capacity,
                         uint64_t* count, eng_error* error) {
  uint64_t n = 0, k;
  (void)self, (void)error;
  if (flags & ENG_ENCODE_SPECIAL) {
    if (n < capacity) ids[n] = 0;
    ++n;
  }
  for (k = 0; k < size; ++k, ++n)
    if (n < capacity) ids[n] = 1 + (int32_t)(unsigned char)text[k];
  *count = n;
  return ENG_OK;
}
static eng_status decode(void* self, const int32_t* ids, uint64_t count, char* text, uint64_t capacity, uint64_t* size,
                         eng_error* error) {
  uint64_t n = 0, k;
  (void)self;
  for (k = 0; k < count; ++k) {
    if (ids[k] < 0 || ids[k] > 256) {
      if (error) error->set(error, ENG_OUT_OF_RANGE, "no such id", 10);
      return ENG_OUT_OF_RANGE;
    }
    if (!ids[k]) continue;
    if (n < capacity) text[n] = (char)(ids[k] - 1);
    ++n;
  }
  *size = n;
  return ENG_OK;
}
static const eng_tokenizer table = {.struct_size = sizeof(eng_tokenizer),
                                    .create = create,
                                    .destroy = destroy,
                                    .describe = describe_ids,
                                    .encode = encode,
                                    .decode = decode};

static const char* describe(void) {
  return eng_description;
}
static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}
static void stop(void) {}
static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_TOKENIZER_KIND) || strcmp(name, "letters") ? NULL : &table;
}
static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};
ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
