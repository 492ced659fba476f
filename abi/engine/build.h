/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/build.h - the builder: what a plugin may do while a step is being planned.
 *
 * A program is made of values (integer ids) and ops between them. Nothing is computed here, no value
 * has memory yet. Errors stick: after the first failing call every later one returns the same status
 * and makes no value, so a chain of calls needs one check of `status` at its end. The host looks at it as well: a
 * function that returns ENG_OK after an error has failed.
 *
 * Ids belong to the builder that gave them, or to the call that was given them: they mean nothing in another call.
 */
#ifndef ENGINE_BUILD_H_
#define ENGINE_BUILD_H_

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_PARAM_NO_DECAY 1u /* weight decay does not touch it (norms, biases) */
#define ENG_PARAM_FP32 2u     /* stays fp32 under every precision policy */

/* A parameter as the model declares it. `name` is its name in checkpoints, in the spelling of the
 * model's Hugging Face files. `init_op` fills it: one of the eng.init_* ops (engine/ops.h) or an op of
 * the plugin's own; `init` are that op's attributes. One that the loss does not depend on has a gradient of zero: the
 * optimizer updates it all the same. One with a dimension of 0 is declared, stored and loaded like others, but no op
 * takes it. Names are unique, of 1 to 1000 bytes without control characters, and none is another parameter's name
 * with `.` and the name of an optimizer's state behind it. A dimension is 0 to 2^40.
 *   Owner: caller; the host copies all of it, lists included.  since 1.0 */
typedef struct eng_param {
  uint32_t struct_size;
  uint32_t flags;
  const char *name;
  const char *init_op;
  const eng_attr *init;
  const int64_t *dims;
  uint32_t n_init;
  uint32_t ndim;
} eng_param;

struct eng_build_api;

/* The builder's public head. Borrowed: dead when the call that received it returns. */
typedef struct eng_build {
  const struct eng_build_api *api;
} eng_build;

/* A range of every piece of a unit that a rank keeps: of `count` equal ones, the one with number `index`. The group has
 * `count` members, each with another index, and among them they hold all.  since 1.0 */
typedef struct eng_part {
  uint32_t struct_size;
  uint32_t count;
  uint32_t index;
  eng_id group;
} eng_part;

/* All functions: Thread: [plan], the thread of the call that received the builder. */
typedef struct eng_build_api {
  uint32_t struct_size;
  uint32_t minor;
  /* The first error so far, or ENG_OK.  since 1.0 */
  eng_status (*status)(eng_build *, eng_error *);
  /* Type and shape of a value.  since 1.0 */
  eng_status (*shape)(eng_build *, eng_id value, eng_desc *out, eng_error *);
  /* Declares a parameter; its id is good for `block`. Only inside eng_model.declare.  since 1.0 */
  eng_status (*param)(eng_build *, const eng_param *, eng_id *out, eng_error *);
  /* Appends a block: blocks run in the order declared, the outputs of one are the inputs of the next.
   * Blocks with equal `tmpl` are traced once; their parameters must agree in number and shape. A
   * parameter may be listed by several blocks (a tied head), and belongs to one at least. Names are as those of
   * parameters, but need not differ. Only inside eng_model.declare.  since 1.0 */
  eng_status (*block)(eng_build *, const char *name, uint32_t tmpl, const eng_id *params, uint32_t n_params,
                      eng_error *);
  /* A part of the micro-batch: "tokens" or "labels", both (B, T) i32; a label of -100 is ignored.
   * Only inside eng_model.trace.  since 1.0 */
  eng_status (*batch)(eng_build *, const char *name, eng_id *out, eng_error *);
  /* A constant table, copied; shared by all blocks of the template. `desc->dtype` is ENG_F32 or ENG_I32; `data` has as
   * many elements as `desc` says.
   * Only inside eng_model.trace.  since 1.0 */
  eng_status (*constant)(eng_build *, const eng_desc *desc, const void *data, eng_id *out, eng_error *);
  /* Emits an op. in[k] = 0 is an absent optional input. out[k] = 0 on entry: the host makes a value and
   * writes its id; otherwise the op writes into the given value (optimizer updates and moves), which must be one that
   * may be written there, of the very type and shape. n_out may be less than the op's outputs, not more. Attributes that
   * the op does not know are ignored; one that is given twice counts as first given. Ops between ranks are for moves and,
   * where there are several ranks, updates. Not inside eng_model.declare or eng_axis.create.  since 1.0 */
  eng_status (*emit)(eng_build *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);
  /* Which rank this plan is for, of how many. Not inside eng_model or an op: every rank traces the same.  since 1.0 */
  eng_status (*world)(eng_build *, uint32_t *rank, uint32_t *size, eng_error *);
  /* A group of ranks for collectives; 1 is all of them. Every rank makes the same groups in the same order. Only inside
   * eng_axis.create.  since 1.0 */
  eng_status (*group)(eng_build *, const uint32_t *ranks, uint32_t n, eng_id *out, eng_error *);
  /* A part for eng_view.part. Only inside eng_axis.create.  since 1.0 */
  eng_status (*part)(eng_build *, const eng_part *, eng_id *out, eng_error *);
  /* `count` elements of a flat value, from element `first`, in its memory. Only inside eng_axis.move.  since 1.0 */
  eng_status (*slice)(eng_build *, eng_id value, uint64_t first, uint64_t count, eng_id *out, eng_error *);
} eng_build_api;

#ifdef __cplusplus
}
#endif
#endif
