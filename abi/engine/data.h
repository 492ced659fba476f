/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/data.h - kind "eng.data/1": where tokens come from.
 *
 * A source is a pure function from (split, position) to one sample, so the whole state of reading is
 * one integer per split: resuming, skipping ahead and reading in parallel need nothing else.
 */
#ifndef ENGINE_DATA_H_
#define ENGINE_DATA_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DATA_KIND "eng.data/1"
#define ENG_DATA_DRAFT "data-1" /* see engine/plugin.h */
#undef ENG_DRAFT_DATA_
#define ENG_DRAFT_DATA_ "'" ENG_DATA_KIND "' = '" ENG_DATA_DRAFT "'\n"
#define ENG_SPLIT_TRAIN 0
#define ENG_SPLIT_VALIDATION 1
#define ENG_IGNORE_LABEL (-100)
#define ENG_INSPECT_VERIFY 1u

/* What the run needs.  Owner: host.  Valid: during create.  since 1.0 */
typedef struct eng_data_request {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t seed;
  int64_t sequence_length; /* T: tokens per sample */
  int64_t vocabulary;      /* of the model: ids at or above it are an error */
  const char *base_dir;    /* absolute; relative paths are relative to it */
} eng_data_request;

/* What the source holds; the host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_data_info {
  uint32_t struct_size;
  uint32_t files;
  uint64_t tokens;             /* in both splits */
  uint64_t train_samples;      /* distinct windows in one epoch; at most 2^62, as the next */
  uint64_t validation_samples; /* 0: nothing held out, and ENG_SPLIT_VALIDATION is never read */
  int64_t vocabulary;          /* ids are below this */
  char content_hash[40];       /* hexadecimal, at least one digit, ends in NUL; equal iff the data is equal */
} eng_data_info;

/* How a long build is watched.  Owner: host.  Valid: during build.  since 1.0 */
typedef struct eng_data_watch {
  uint32_t struct_size;
  uint32_t threads; /* to build with; 0: one per processor. The result does not depend on it */
  void *data;
  /* Tells how many bytes of how many were worked through, and the tokens so far. 0: the build shall stop.
   *   Thread: any, one call at a time  since 1.0 */
  int32_t (*report)(const struct eng_data_watch *, uint64_t done, uint64_t total, uint64_t tokens);
} eng_data_watch;

/* What a build left; the host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_data_built {
  uint32_t struct_size;
  int32_t reused; /* 1: it was there already and is whole */
  uint64_t tokens;
  uint64_t documents;
  char path[4096]; /* the file that create will use; empty: this source needs none, the rest is 0 */
} eng_data_built;

typedef struct eng_data {
  uint32_t struct_size;
  uint32_t minor;
  /* Opens and indexes the data. ENG_NOT_FOUND: a path matches nothing; ENG_DATA_LOSS: unreadable;
   * ENG_INVALID: empty, too short for one sample, or ids out of range; the text names file and place.
   *   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, const eng_data_request *, void **self, eng_error *);
  void (*destroy)(void *self);
  eng_status (*describe)(void *self, eng_data_info *out, eng_error *);
  /* Writes sample `position` (0, 1, ...; beyond one epoch the order is shuffled anew) as T tokens and T
   * labels, labels[t] being the token after tokens[t] or ENG_IGNORE_LABEL. Training and validation windows
   * never overlap. Allocates nothing. All T of both are written; the host checks every id against the model's
   * vocabulary. Positions come in any order, and again; held-out ones are below validation_samples.
   *   Thread: [step], one caller at a time, not always the same thread  since 1.0 */
  eng_status (*read)(void *self, int32_t split, uint64_t position, int32_t *tokens, int32_t *labels, eng_error *);
  /* Does, and keeps in a file, the slow part of create, which does it unwatched if this was not called. NULL: there
   * is none. `request` may have a vocabulary of 0: then it is not compared with the model's. ENG_UNAVAILABLE: the
   * watch asked to stop; nothing is left behind. The watch may be NULL. Called before create, by one rank of several,
   * while the others wait.
   *   Owner: caller.  Valid: during the call.  Thread: [setup]  since 1.0 */
  eng_status (*build)(const eng_options *, const eng_data_request *, const eng_data_watch *, eng_data_built *out,
                      eng_error *);
  /* Says what a file of tokens is, as lines "name: value"; with ENG_INSPECT_VERIFY after reading and checking every
   * byte of it. `path` is absolute. *size is the length of the text, of which no more than `capacity` bytes are written;
   * more than that, which the host makes 64 KiB, is an error. A refusal says why; the next source is asked then. NULL: this
   * source has no such files.
   *   Owner: caller.  Valid: during the call.  Thread: [setup]  since 1.0 */
  eng_status (*inspect)(const char *path, uint32_t flags, char *text, uint64_t capacity, uint64_t *size, eng_error *);
} eng_data;

#ifdef __cplusplus
}
#endif
#endif
