/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/tokenizer.h - kind "eng.tokenizer/1": text to token ids and back.
 *
 * Text is bytes. The tokenizer handles bytes that are not UTF-8; they are never an error. Ids are small non-negative
 * numbers. A call keeps no state for the next one.
 *
 * Who asks. The engine itself (`engine generate`, `engine data inspect`, the check that data and model have the same
 * tokenizer) uses the tokenizer named "auto" of the first plugin that provides one. The sources `text` and `tokens`
 * never ask a plugin: they have tokenizers of their own. So a plugin with another tokenizer also brings a source
 * (engine/data.h) that uses it, or its users make token files.
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_TOKENIZER_H_
#define ENGINE_TOKENIZER_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_TOKENIZER_KIND "eng.tokenizer/1"

/* A flag of encode: also write the ids that the tokenizer's file puts before and after a text (bos, eos). */
#define ENG_ENCODE_SPECIAL 1u

/* The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_tokenizer_info {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t vocabulary; /* ids are below this; 1 to 2^31 - 1 */
  int32_t bos;        /* begins a text; -1: there is none */
  int32_t eos;        /* ends a text; `engine generate` stops after it; -1: there is none */
  int32_t eot;        /* separates documents of training data; `engine generate` stops after it; -1: there is none */
  int32_t reserved2;
  char content_hash[40]; /* hexadecimal, ends in NUL; equal if and only if every text gets equal ids */
} eng_tokenizer_info;

typedef struct eng_tokenizer {
  uint32_t struct_size;
  uint32_t minor;
  /* Opens the tokenizer at `path`, an absolute path of a file, or of a folder that contains one. If the configuration
   * says `tokenizer = "bytes"`, `path` is the text "bytes". A tokenizer without files ignores it. The engine passes no
   * options here.
   * ENG_NOT_FOUND: no such file. ENG_DATA_LOSS: unreadable. ENG_INVALID: not a tokenizer of this kind. ENG_UNSUPPORTED:
   * the file requires something that this tokenizer cannot do. The text names the file and the place in it.
   *   Owner: caller, until destroy.  Call: [any & !step]  since 1.0 */
  eng_status (*create)(const eng_options *, const char *path, void **self, eng_error *);
  /* Call: [any & !step & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Called after create.  Call: [any & !step & created]  since 1.0 */
  eng_status (*describe)(void *self, eng_tokenizer_info *out, eng_error *);
  /* Encodes `size` bytes. *count becomes the number of ids. If that is more than `capacity`, only the first `capacity`
   * ids were written; a second call with a capacity of *count must then succeed. `flags`: ENG_ENCODE_*.
   *   Owner: caller.  Valid: during the call.  Call: [any & created], several calls at a time  since 1.0 */
  eng_status (*encode)(void *self, const char *text, uint64_t size, uint32_t flags, int32_t *ids, uint64_t capacity,
                       uint64_t *count, eng_error *);
  /* Writes the bytes of `count` ids, one after the other. Decoding ids one by one gives the same bytes. So a character
   * may come in parts, and a space that the encoding puts before a text is kept. *size and `capacity` are as in encode.
   * ENG_OUT_OF_RANGE: an id is not below the vocabulary.
   *   Owner: caller.  Valid: during the call.  Call: [any & created], several calls at a time  since 1.0 */
  eng_status (*decode)(void *self, const int32_t *ids, uint64_t count, char *text, uint64_t capacity, uint64_t *size,
                       eng_error *);
} eng_tokenizer;

#ifdef __cplusplus
}
#endif
#endif
