/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/tokenizer.h - kind "eng.tokenizer/1": text to token ids and back.
 *
 * Text is bytes; what is not UTF-8 is the tokenizer's to deal with, never an error. Ids are small
 * non-negative numbers. Nothing here keeps state between calls. The engine itself (generate, data inspect) asks the
 * one named "auto" of the first plugin that provides it. The sources `text` and `tokens` ask nobody: they have tokenizers
 * of their own. So a plugin with another tokenizer brings a source (engine/data.h) that uses it, or token files.
 */
#ifndef ENGINE_TOKENIZER_H_
#define ENGINE_TOKENIZER_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_TOKENIZER_KIND "eng.tokenizer/1"
#define ENG_TOKENIZER_DRAFT "tokenizer-1" /* see engine/plugin.h */
#undef ENG_DRAFT_TOKENIZER_
#define ENG_DRAFT_TOKENIZER_ "'" ENG_TOKENIZER_KIND "' = '" ENG_TOKENIZER_DRAFT "'\n"

/* Of encode: also the ids that the tokenizer's own file puts before and behind a text (bos, eos). */
#define ENG_ENCODE_SPECIAL 1u

/* The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_tokenizer_info {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t vocabulary; /* ids are below this; 1 to 2^31 - 1 */
  int32_t bos;        /* begins a text; -1: there is none */
  int32_t eos;        /* ends a text, and a generation; -1: there is none */
  int32_t eot;        /* stands between documents of training data; -1: there is none */
  int32_t reserved2;
  char content_hash[40]; /* hexadecimal, ends in NUL; equal iff every text gets equal ids */
} eng_tokenizer_info;

typedef struct eng_tokenizer {
  uint32_t struct_size;
  uint32_t minor;
  /* Opens the tokenizer of `path`: absolute, a file or a folder that holds one; ignored by a tokenizer without
   * files. ENG_NOT_FOUND: no such file; ENG_DATA_LOSS: unreadable; ENG_INVALID: not a tokenizer of this kind;
   * ENG_UNSUPPORTED: it asks for what this one cannot do. The text names file and place.
   *   Owner: caller, until destroy.  Thread: [any], but not inside a step  since 1.0 */
  eng_status (*create)(const eng_options *, const char *path, void **self, eng_error *);
  void (*destroy)(void *self);
  eng_status (*describe)(void *self, eng_tokenizer_info *out, eng_error *);
  /* Encodes `size` bytes. *count becomes the number of ids; where it is above `capacity`, only the first `capacity`
   * were written: call again with more room, *count of them, which must do. `flags`: ENG_ENCODE_*.
   *   Owner: caller.  Valid: during the call.  Thread: [any], many at once  since 1.0 */
  eng_status (*encode)(void *self, const char *text, uint64_t size, uint32_t flags, int32_t *ids, uint64_t capacity,
                       uint64_t *count, eng_error *);
  /* The bytes of `count` ids, one after the other: decoding ids one by one gives the same bytes, so a character may
   * come in parts, and a space that an encoding puts before a text is there. *size and `capacity` are as in encode.
   * ENG_OUT_OF_RANGE: an id that is not below the vocabulary.
   *   Owner: caller.  Valid: during the call.  Thread: [any], many at once  since 1.0 */
  eng_status (*decode)(void *self, const int32_t *ids, uint64_t count, char *text, uint64_t capacity, uint64_t *size,
                       eng_error *);
} eng_tokenizer;

#ifdef __cplusplus
}
#endif
#endif
