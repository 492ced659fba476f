/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/base.h - the words every other header uses: status codes, the error sink, dtypes, options.
 *
 * Rules for the whole ABI. Structs start with `struct_size` (sizeof at the writer's build). Whoever
 * reads a table copies min(its own size, the given size) into a zeroed table of its own, so tables grow
 * only at the end and an old plugin keeps working. A function that can fail returns eng_status and takes
 * an error sink last; on failure its out parameters are untouched and nothing is leaked. Nothing is
 * thrown, nobody exits, writes to stderr or reads the environment. Strings are UTF-8. Pointers are not NULL
 * where nothing else is said, but a list of 0 may be. Out structs that the host gives are zeroed, and struct_size set.
 * An object is made by `create`, which may write NULL as its self, and destroyed exactly once, with that self, where
 * `create` returned ENG_OK; several may live at a time.
 * The last lines of a function's comment say who owns what, how long it is valid, and who may call it:
 *   [setup]  one thread, before the first step          [plan]  one thread, while a program is built
 *   [step]   inside a step: no allocation, no lookup, no log, no blocking     [any]  any thread
 */
#ifndef ENGINE_BASE_H_
#define ENGINE_BASE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_ABI_MAJOR 1
#define ENG_ABI_MINOR 0
/* The draft of base.h and plugin.h, which every plugin speaks. Each kind has a draft of its own beside its id, such as
 * ENG_OPTIMIZER_DRAFT; it also covers the headers that its header includes. Until the freeze an engine uses only what was
 * built from the very same draft: see "Drafts" in engine/plugin.h. */
#define ENG_ABI_DRAFT_ID "draft-8"
/* What ENG_DESCRIPTION says of each kind: nothing, until that kind's header is included. */
#define ENG_DRAFT_MODEL_ ""
#define ENG_DRAFT_OPTIMIZER_ ""
#define ENG_DRAFT_DATA_ ""
#define ENG_DRAFT_TOKENIZER_ ""
#define ENG_DRAFT_DEVICE_ ""
#define ENG_DRAFT_KERNELS_ ""
#define ENG_DRAFT_OPS_ ""
#define ENG_DRAFT_COMM_ ""
#define ENG_DRAFT_PRECISION_ ""
#define ENG_DRAFT_ZERO_ ""

typedef int32_t eng_status;
#define ENG_OK 0
#define ENG_INVALID 3 /* an argument or option is wrong */
#define ENG_NOT_FOUND 5
#define ENG_NO_MEMORY 8
#define ENG_PRECONDITION 9 /* called in the wrong state */
#define ENG_OUT_OF_RANGE 11
#define ENG_UNSUPPORTED 12 /* a valid request that this implementation cannot serve */
#define ENG_INTERNAL 13
#define ENG_UNAVAILABLE 14
#define ENG_DATA_LOSS 15 /* unreadable, truncated or corrupted data */

typedef uint32_t eng_id; /* value, parameter, unit, part: 0 means none */

/* Element types. */
#define ENG_F32 1
#define ENG_F64 2
#define ENG_BF16 3
#define ENG_F16 4
#define ENG_I32 5
#define ENG_I64 6
#define ENG_U8 7

/* A caller-given sink for the text of an error. NULL is allowed wherever one is taken.
 * `set` copies the text, which may be NULL (none) and need not end in NUL. Call it at most once per failing call; of
 * several texts the last one counts. Of a text of a plugin's the host keeps the first 16 KiB and shows control characters
 * and what is not UTF-8 as `?`. A status without a text, or one that is none of the above, is told by its number.
 *   Owner: caller.  Valid: during the call.  Thread: that of the call.  since 1.0 */
typedef struct eng_error {
  uint32_t struct_size;
  int32_t code;
  void *data;
  void (*set)(struct eng_error *self, eng_status code, const char *text, uint64_t length);
} eng_error;

/* The plugin's own section of the configuration: typed, complete (defaults filled in), validated
 * against the schema in the plugin's description, read-only. Keys are those of the schema.
 * A missing key, or one that has neither been given nor a default, is ENG_NOT_FOUND; another type than the schema's is
 * ENG_INVALID. Of type bytes is an int; of type duration a float, in seconds.
 *   Owner: host.  Valid: during the call it was passed to.  Thread: that of the call.  since 1.0 */
typedef struct eng_options {
  uint32_t struct_size;
  uint32_t minor;
  void *data;
  eng_status (*get_bool)(const struct eng_options *, const char *key, int32_t *out, eng_error *);
  eng_status (*get_int)(const struct eng_options *, const char *key, int64_t *out, eng_error *);
  eng_status (*get_float)(const struct eng_options *, const char *key, double *out, eng_error *);
  /* Valid: as long as the options. */
  eng_status (*get_string)(const struct eng_options *, const char *key, const char **out, eng_error *);
  /* Number of elements of a list; 0 for an absent optional list. */
  eng_status (*get_count)(const struct eng_options *, const char *key, uint32_t *out, eng_error *);
  eng_status (*get_float_at)(const struct eng_options *, const char *key, uint32_t index, double *out, eng_error *);
  eng_status (*get_string_at)(const struct eng_options *, const char *key, uint32_t index, const char **out,
                              eng_error *);
  /* 1 if the user (or a preset) gave the key, 0 if it holds its default or has no default. */
  int32_t (*is_set)(const struct eng_options *, const char *key);
} eng_options;

#ifdef __cplusplus
}
#endif
#endif
