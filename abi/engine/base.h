/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/base.h - what every other header uses: contract tags, status codes, the error sink, dtypes, options.
 *
 * Rules for the whole ABI
 *   Structs start with `struct_size`, which is the sizeof at the writer's build. Whoever reads a table copies
 *   min(its own size, the given size) into a zeroed table of its own. So tables grow only at the end, and an old plugin
 *   keeps working. For an out struct that the host passes, the host zeroes it and sets struct_size.
 *   The other side may be older than these headers. Before a plugin reads a field of a table or struct of the host that
 *   the first version did not have, it asks ENG_HAS. The helpers of these headers do so.
 *   A function that can fail returns eng_status and takes an error sink as its last parameter. On failure it leaves its
 *   out parameters untouched and leaks nothing.
 *   No function throws, exits, writes to stderr or reads the environment.
 *   Strings are UTF-8. A pointer must not be NULL unless its comment allows it. A list of 0 elements may be NULL.
 *   `create` makes an object. It may write NULL as the object's self. Each object for which `create` returned ENG_OK is
 *   destroyed exactly once, with the self that `create` wrote. Several objects may exist at a time.
 *
 * Contract tags
 *   The last lines of a comment state the contract:
 *     Owner  who owns what is passed or returned: the caller, the host or the plugin
 *     Valid  how long it may be used
 *     Call   when the function may be called: [PHASE] or [PHASE & STATE]
 *     since  the first version of the ABI that has it
 *   `!` means not: [any & !step] is every phase except [step].
 *
 *   Phases
 *     [setup]  No program runs: before the first step, between two steps, or after the last one. One thread calls. The
 *              function may allocate, open files and block.
 *     [plan]   A program is being built. One thread calls. The function may allocate. Programs are built only while
 *              none runs, so the engine may also call [setup] functions then.
 *     [step]   A program may be running: a step of training, an evaluation, the next token of a text. The function must
 *              not allocate, look anything up by name, log or block, unless its comment says otherwise.
 *     [any]    Every phase, from any thread.
 *
 *   States
 *     started     eng_plugin.start returned ENG_OK, and eng_plugin.stop has not been called. Every function of a table
 *                 from eng_plugin.get_interface needs this state; their tags do not repeat it.
 *     created     `create` of this kind returned ENG_OK for the object, and `destroy` has not been called for it.
 *     inside F    F, a function of the plugin, has been called with this argument and has not returned.
 *   A header that needs other states defines them at its beginning: engine/device.h, engine/kernel.h, engine/model.h.
 *
 * Frozen as 1.0 since 2026-11-28 (docs/abi-policy.md).
 */
#ifndef ENGINE_BASE_H_
#define ENGINE_BASE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_ABI_MAJOR 1
#define ENG_ABI_MINOR 0
/* The id of the headers that every plugin uses, for eng_plugin.draft_id. It stays as it is, because these headers are
 * frozen. A kind that is not has an id with its draft, such as ENG_OPTIMIZER_DRAFT, for the description: see "Drafts" in
 * engine/plugin.h. */
#define ENG_ABI_DRAFT_ID "1.0"

/* 1 if the struct behind the pointer `table` reaches to the end of `field`, by its struct_size; otherwise 0, and the
 * field must not be read. For tables (eng_build_api, eng_host) and for structs that the host passes (eng_update,
 * eng_site, eng_data_request). It says nothing of the field's value: a pointer that may be NULL is compared as well.
 *   if (ENG_HAS(b->api, offers)) ...
 *   if (ENG_HAS(run, counters) && run->counters) ...
 *   since 1.0 */
#define ENG_HAS(table, field)        \
  ((uint64_t)(table)->struct_size >= \
   (uint64_t)((const char *)&(table)->field - (const char *)(table)) + (uint64_t)sizeof((table)->field))

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

/* A sink, given by the caller, for the text of an error. NULL is allowed wherever a function takes one.
 * `set` copies the text, which may be NULL (no text) and need not end in NUL. A failing call calls `set` at most once.
 * If it calls it more often, the last text counts. The host keeps the first 16 KiB of a plugin's text, and shows
 * control characters and bytes that are not UTF-8 as `?`. If there is no text, the host reports the number of the
 * status, which may be none of the above.
 *   Owner: caller.  Valid: during the call.  Call: from the thread of the call that received it.  since 1.0 */
typedef struct eng_error {
  uint32_t struct_size;
  int32_t code;
  void *data;
  void (*set)(struct eng_error *self, eng_status code, const char *text, uint64_t length);
} eng_error;

/* The plugin's own section of the configuration. It is read-only, typed, complete (defaults are filled in), and
 * validated against the schema in the plugin's description. Keys are those of the schema.
 * ENG_NOT_FOUND: there is no such key, or it was not given and has no default. ENG_INVALID: the schema gives it another
 * type. A key of type bytes is read as an int, one of type duration as a float, in seconds.
 *   Owner: host.  Valid: during the call it was passed to.  Call: from the thread of that call.  since 1.0 */
typedef struct eng_options {
  uint32_t struct_size;
  uint32_t minor;
  void *data;
  eng_status (*get_bool)(const struct eng_options *, const char *key, int32_t *out, eng_error *);
  eng_status (*get_int)(const struct eng_options *, const char *key, int64_t *out, eng_error *);
  eng_status (*get_float)(const struct eng_options *, const char *key, double *out, eng_error *);
  /* Valid: as long as the options. */
  eng_status (*get_string)(const struct eng_options *, const char *key, const char **out, eng_error *);
  /* Number of elements of a list; 0 for an optional list that was not given. */
  eng_status (*get_count)(const struct eng_options *, const char *key, uint32_t *out, eng_error *);
  eng_status (*get_float_at)(const struct eng_options *, const char *key, uint32_t index, double *out, eng_error *);
  eng_status (*get_string_at)(const struct eng_options *, const char *key, uint32_t index, const char **out,
                              eng_error *);
  /* 1 if the user (or a preset) gave the key, 0 if it has its default or no value. */
  int32_t (*is_set)(const struct eng_options *, const char *key);
} eng_options;

#ifdef __cplusplus
}
#endif
#endif
