/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/data.h - kind "eng.data/1": where tokens come from.
 *
 * A source is a pure function from (split, position) to one sample. So the whole state of reading is one integer per
 * split. Resuming, skipping ahead and reading in parallel need nothing else.
 *
 * A sample is a set of named fields, each of T values of one type. Every source has "tokens" and "labels". Some names
 * have a fixed meaning:
 *   tokens        i32: token ids, below the model's vocabulary
 *   labels        i32: labels[t] is the token after tokens[t], or ENG_IGNORE_LABEL
 *   loss_weights  f32: the factor of the loss at each position, finite and not negative
 *   segments      i32: which document a position belongs to, where a sample holds several. A document is a contiguous
 *                 range of positions: its number is constant inside, at least 0, and differs from the number of the
 *                 document beside it. ENG_PADDING_SEGMENT: the position holds no token, and its label is
 *                 ENG_IGNORE_LABEL. A model that reads segments lets no document see another one
 *   positions     i32: the position inside the document: 0 at its first token, then one more for each token. Padding
 *                 counts as a document
 * A source may provide fields of any other name, such as "org.example.score".
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_DATA_H_
#define ENGINE_DATA_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_DATA_KIND "eng.data/1"
#define ENG_SPLIT_TRAIN 0
#define ENG_SPLIT_VALIDATION 1
#define ENG_IGNORE_LABEL (-100)
#define ENG_PADDING_SEGMENT (-1)
#define ENG_INSPECT_VERIFY 1u

#define ENG_FIELD_TOKENS "tokens"
#define ENG_FIELD_LABELS "labels"
#define ENG_FIELD_LOSS_WEIGHTS "loss_weights"
#define ENG_FIELD_SEGMENTS "segments"
#define ENG_FIELD_POSITIONS "positions"
#define ENG_MAX_FIELDS 64

/* A field of a sample: T values. Frozen: it never grows, so arrays of it are safe.  since 1.0 */
typedef struct eng_field {
  const char *name; /* 1 to 64 bytes: a letter, then letters, digits, `_`, `.` and `-` */
  int32_t dtype;    /* ENG_I32 or ENG_F32 */
  uint32_t reserved;
} eng_field;

/* Requirements of the run.  Owner: host.  Valid: during create.  since 1.0 */
typedef struct eng_data_request {
  uint32_t struct_size;
  uint32_t n_fields; /* in create at least 2, in build 0 */
  uint64_t seed;
  int64_t sequence_length; /* T: tokens per sample */
  int64_t vocabulary;      /* of the model: an id that is not below it is an error */
  const char *base_dir;    /* an absolute path; relative paths of the options are relative to it */
  const eng_field *fields; /* that the run reads: tokens, labels, then some of those that `fields` of the source said */
} eng_data_request;

/* Contents of the source. The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_data_info {
  uint32_t struct_size;
  uint32_t files;
  uint64_t tokens;             /* in both splits */
  uint64_t train_samples;      /* distinct windows in one epoch; at most 2^62 */
  uint64_t validation_samples; /* at most 2^62; 0: nothing is held out, and ENG_SPLIT_VALIDATION is never read */
  int64_t vocabulary;          /* ids are below this */
  char content_hash[40];       /* hexadecimal, 1 to 39 digits, ends in NUL; equal if and only if the data is equal */
  uint64_t host_bytes;         /* of the process that the source keeps, such as text; the plan adds them to its peak */
  uint64_t documents;          /* in the training samples of one epoch, if samples hold whole documents; else 0 */
  uint64_t padding;            /* positions of those samples that hold no token */
} eng_data_info;

/* Receives the progress of a long build.  Owner: host.  Valid: during build.  since 1.0 */
typedef struct eng_data_watch {
  uint32_t struct_size;
  uint32_t threads; /* number of threads to build with; 0: one per processor. The result does not depend on it */
  void *data;
  /* Reports that `done` of `total` bytes have been processed, and the number of tokens so far. Returns 0 if the build
   * must stop.  Call: [setup & inside build], from any thread, one call at a time  since 1.0 */
  int32_t (*report)(const struct eng_data_watch *, uint64_t done, uint64_t total, uint64_t tokens);
} eng_data_watch;

/* The result of a build. The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_data_built {
  uint32_t struct_size;
  int32_t reused; /* 1: the file existed already and is complete */
  uint64_t tokens;
  uint64_t documents;
  char path[4096]; /* the file that create will use, ends in NUL; empty: this source needs no file, and the rest is 0 */
} eng_data_built;

typedef struct eng_data {
  uint32_t struct_size;
  uint32_t minor;
  /* Opens and indexes the data. ENG_NOT_FOUND: a path matches nothing. ENG_DATA_LOSS: unreadable. ENG_INVALID: empty,
   * too short for one sample, or ids out of range. The text names the file and the place in it.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, const eng_data_request *, void **self, eng_error *);
  /* Call: [setup & created]; no `read` is running  since 1.0 */
  void (*destroy)(void *self);
  /* Called after create.  Call: [setup & created]  since 1.0 */
  eng_status (*describe)(void *self, eng_data_info *out, eng_error *);
  /* Writes sample `position`: for each field of the request, in its order, T values to values[k]. So values[0] are the
   * tokens and values[1] the labels, both int32_t. All T values of every field are written. The host checks them against
   * what the names mean (above), and every id against the model's vocabulary. Training and validation samples never
   * overlap.
   * Positions count from 0. With R ranks, M samples of a micro-batch and A micro-batches of a step, step s (from 0) has
   * the training positions s * R * M * A and following: row i of micro-batch a of rank r is position
   * s * R * M * A + (a * R + r) * M + i. So the rows of a micro-batch are neighbours. Training positions continue
   * beyond one epoch, where the order is shuffled again. Validation positions are below validation_samples. Positions
   * come in any order, and the same one may be read again.
   * Allocates nothing. A thread of the engine reads the next training batch while a step runs. Between programs, the
   * main thread reads the batches of evaluations.
   *   Call: [step & created], one call at a time, not always from the same thread  since 1.0 */
  eng_status (*read)(void *self, int32_t split, uint64_t position, void *const *values, eng_error *);
  /* Does the slow part of create in advance, and stores the result in a file. If it was not called, create does the
   * same without reporting progress. NULL: create has no slow part. If the vocabulary of `request` is 0, ids are not
   * compared with the model's vocabulary. The watch may be NULL. ENG_UNAVAILABLE: the watch asked to stop; no file
   * remains. Called before create, in one process only: the first rank, or the command that starts the ranks. The
   * others wait.
   *   Owner: caller.  Valid: during the call.  Call: [setup]  since 1.0 */
  eng_status (*build)(const eng_options *, const eng_data_request *, const eng_data_watch *, eng_data_built *out,
                      eng_error *);
  /* Describes a file of tokens in lines "name: value". With ENG_INSPECT_VERIFY, it first reads and checks every byte of
   * the file. `path` is absolute. *size becomes the length of the text; at most `capacity` bytes of it are written. The
   * host passes a capacity of 64 KiB, and a longer text is an error. If this source does not know the file, it fails
   * and says why; the host then asks the next source. NULL: this source has no such files.
   *   Owner: caller.  Valid: during the call.  Call: [setup]  since 1.0 */
  eng_status (*inspect)(const char *path, uint32_t flags, char *text, uint64_t capacity, uint64_t *size, eng_error *);
  /* Writes the fields that a source with these options provides beside tokens and labels, and their number. At most
   * `cap` are written, where cap = ENG_MAX_FIELDS. It opens no data: it is also called where a plan is only looked at.
   * Names are unique; those above have their types. The model is told which fields there are (eng_build_api.offers), and
   * `create` which of them it reads. A source that provides segments is refused for a model that does not read them. An
   * option that turns this on is best called `pack`: the engine's advice then names it. NULL: tokens and labels only.
   *   Owner: plugin.  Valid: until the process ends.  Call: [setup]  since 1.0 */
  eng_status (*fields)(const eng_options *, eng_field *out, uint32_t cap, uint32_t *n, eng_error *);
} eng_data;

#ifdef __cplusplus
}
#endif
#endif
