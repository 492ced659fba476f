/* SPDX-License-Identifier: Apache-2.0
 *
 * A format for `[data]` in C99: files of records, each a text with a score. A file is
 *   RECORDS1                          8 bytes
 *   score, length, then the text      for each record: two numbers of 4 bytes, little-endian, and `length` bytes
 *
 * It keeps one piece of a text at a time, whatever the size of the file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/documents.h"
#include "engine/plugin.h"

#define BEGIN "RECORDS1"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.records'\n"
    "name = 'Records'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'an example of a format'\n"
    "[[provides]]\n"
    "kind = '" ENG_DOCUMENTS_DRAFT
    "'\n"
    "name = 'records'\n"
    "summary = 'texts with scores'\n"
    "begins = ['5245434f52445331']\n"
    "[provides.options]\n"
    "least_score = { type = 'int', default = 0, min = 0, help = 'records with a lower score are left out' }\n")

typedef struct records {
  int64_t least_score;
} records;

static eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, strlen(text));
  return status;
}

static eng_status cut_short(eng_error* error, uint64_t number) {
  char text[160];
  snprintf(text, sizeof text, "record %" PRIu64 " is cut short, at the end of the file: copy the file again", number);
  return fail(error, ENG_DATA_LOSS, text);
}

static eng_status create(const eng_options* options, void** self, eng_error* error) {
  records* made;
  int64_t least = 0;
  const eng_status s = options->get_int(options, "least_score", &least, error);
  if (s != ENG_OK) return s;
  made = malloc(sizeof *made);
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  made->least_score = least;
  *self = made;
  return ENG_OK;
}

static uint32_t number_at(const unsigned char* bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static eng_status read_file(void* self, const eng_documents_in* in, const eng_documents_out* out,
                            eng_documents_seen* seen, eng_error* error) {
  const records* me = self;
  unsigned char head[8];
  char piece[4096];
  uint64_t got = 0, number;
  eng_status s = in->read(in, head, sizeof head, &got, error);
  if (s != ENG_OK) return s;
  if (got < sizeof head || memcmp(head, BEGIN, sizeof head) != 0)
    return fail(error, ENG_INVALID, "the file does not begin with " BEGIN ": it has no records, leave it out of paths");
  for (number = 1;; ++number) {
    uint64_t left;
    int wanted;
    s = in->read(in, head, sizeof head, &got, error);
    if (s != ENG_OK) return s;
    if (got == 0) return ENG_OK;
    if (got < sizeof head) return cut_short(error, number);
    wanted = number_at(head) >= me->least_score;
    if (!wanted) ++seen->left_out;
    for (left = number_at(head + 4); left > 0; left -= got) {
      const uint64_t n = left < sizeof piece ? left : sizeof piece;
      s = in->read(in, piece, n, &got, error);
      if (s != ENG_OK) return s;
      if (got < n) return cut_short(error, number);
      if (!wanted) continue;
      s = out->put(out, piece, n, left > n ? ENG_TEXT_MORE : 0, error);
      if (s != ENG_OK) return s; /* the source wants no more */
    }
  }
}

static const eng_documents table = {sizeof(eng_documents), 0, create, free, read_file};

static const char* describe(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return !strcmp(kind, ENG_DOCUMENTS_KIND) && !strcmp(name, "records") ? &table : NULL;
}

static const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
