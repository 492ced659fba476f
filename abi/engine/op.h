/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/op.h - kind "eng.ops/1": ops that a plugin brings, beside the standard ones of engine/ops.h.
 *
 * An op says what the planner must know: the shapes of its outputs, its work, what may share memory, and
 * how it is differentiated. How it is computed is said by kernels (engine/kernel.h), one per type of
 * device, from the same plugin or any other. The ops of every plugin that a run uses can be emitted by
 * all of them, whichever section of the configuration names the plugin: a model, an optimizer or a
 * strategy finds those of its own file. Nothing tells them apart from
 * the standard ones afterwards: they are planned, given memory, verified and run in the same way.
 */
#ifndef ENGINE_OP_H_
#define ENGINE_OP_H_

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OPS_KIND "eng.ops/1"
#define ENG_OPS_DRAFT "ops-2" /* see engine/plugin.h */
#undef ENG_DRAFT_OPS_
#define ENG_DRAFT_OPS_ "'" ENG_OPS_KIND "' = '" ENG_OPS_DRAFT "'\n"

struct eng_gradient_api;

/* The backward of one node while it is derived. Borrowed: dead when eng_op.grad returns.  since 1.0 */
typedef struct eng_gradient {
  const struct eng_gradient_api *api;
} eng_gradient;

/* Values are ids as in engine/build.h. A gradient has the type and shape of what it belongs to. Errors stick:
 * after the first failing call every later one does nothing and gives 0, so a rule needs one check of
 * `status` at its end. All functions: Thread: [plan], the thread of the call to eng_op.grad.  since 1.0 */
typedef struct eng_gradient_api {
  uint32_t struct_size;
  uint32_t minor;
  eng_status (*status)(eng_gradient *, eng_error *);
  /* Input and output `k` of the node, as the forward saw them; 0 for an absent optional input. An input or
   * output that the rule hands to an op is kept in memory until the backward; all others are not. */
  eng_id (*in)(eng_gradient *, uint32_t k);
  eng_id (*out)(eng_gradient *, uint32_t k);
  /* Gradient of output `k`, which nobody may overwrite; 0 if nothing depends on that output. */
  eng_id (*d_out)(eng_gradient *, uint32_t k);
  /* The same if an op of the rule may overwrite it, else 0. */
  eng_id (*own_d_out)(eng_gradient *, uint32_t k);
  /* 1 if the gradient of input `k` is wanted. */
  int32_t (*wants)(eng_gradient *, uint32_t k);
  /* The gradient that input `k` has so far, for an op that adds to it in place; 0 if there is none, or if
   * another value still needs it. The sum must then be given. */
  eng_id (*take)(eng_gradient *, uint32_t k);
  /* This node's contribution to the gradient of input `k`, or, after a `take` that gave one, the sum. Contributions of
   * several calls are added; an input that is given none gets none from here, as if the output did not depend on it. */
  void (*give)(eng_gradient *, uint32_t k, eng_id gradient);
  eng_status (*shape)(eng_gradient *, eng_id value, eng_desc *out, eng_error *);
  /* The node's attributes.  Owner: host.  Valid: during eng_op.grad. */
  const eng_attr *(*attrs)(eng_gradient *, uint32_t *n);
  /* Appends an op to the backward: as eng_build_api.emit, but every output is a new value. */
  eng_status (*emit)(eng_gradient *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);
} eng_gradient_api;

struct eng_stepping_api;

/* One node while the program for the next positions of a running sequence is derived: what was traced for
 * (B, T) is emitted again for (B, n), n positions that follow those of the steps before. Borrowed: dead when
 * eng_op.step returns.  since 1.0 */
typedef struct eng_stepping {
  const struct eng_stepping_api *api;
} eng_stepping;

/* Errors stick as in eng_gradient_api. All functions: Thread: [plan], the thread of the call to eng_op.step.
 * since 1.0 */
typedef struct eng_stepping_api {
  uint32_t struct_size;
  uint32_t minor;
  eng_status (*status)(eng_stepping *, eng_error *);
  /* What stands for input `k` at the next positions; 0 for an absent optional input. */
  eng_id (*in)(eng_stepping *, uint32_t k);
  eng_status (*shape)(eng_stepping *, eng_id value, eng_desc *out, eng_error *);
  /* The node's attributes.  Owner: host.  Valid: during eng_op.step. */
  const eng_attr *(*attrs)(eng_stepping *, uint32_t *n);
  /* A tensor that each block has for itself from step to step, zero before the first position. Give it to one
   * op that writes it in place. */
  eng_id (*state)(eng_stepping *, const eng_desc *);
  /* i64[8]; counters[ENG_C_POSITION] (engine/ops.h) is the first position of the step. */
  eng_id (*counters)(eng_stepping *);
  /* What stands for output `k`; needed where something reads it. */
  void (*give)(eng_stepping *, uint32_t k, eng_id value);
  /* As eng_gradient_api.emit. */
  eng_status (*emit)(eng_stepping *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);
} eng_stepping_api;

/* Output `out` takes the memory of input `in`, which has as many bytes. With `must` it always does when the
 * input is present (accumulators), else only where nobody reads the input afterwards. A model or gradient that emits an
 * op with `must` on a value that is still needed, or that is not made by an op, is refused. An op that only updates and
 * moves emit needs no pairs: there the outputs are named by whoever emits it, and may be its inputs. Frozen.  since 1.0 */
typedef struct eng_in_place {
  uint32_t out;
  uint32_t in;
  uint32_t must;
  uint32_t reserved;
} eng_in_place;

/* Cheap: where the backward reads output 0 and the inputs are kept anyway, the op is run again rather than
 * the output kept. Same inputs, same bits. */
#define ENG_OP_CHEAP 1u
/* Each position is computed by itself: the op serves a running sequence as it is. */
#define ENG_OP_BY_POSITION 2u

/* One op. Its id begins with that of the plugin: "org.example.scan/1" for the plugin org.example.
 *   Owner: plugin.  Valid: for ever.  since 1.0 */
typedef struct eng_op {
  uint32_t struct_size;
  uint32_t flags; /* ENG_OP_* */
  const char *id;
  uint32_t min_in; /* inputs min_in .. max_in - 1 are optional */
  uint32_t max_in;
  /* Writes the descriptions of the outputs and their number, 1 to `cap`; ENG_INVALID and what is wrong
   * with the inputs or attributes. The call has its inputs and attributes; n_out and `parallel` are 0. Called for every
   * use of the op, and whenever a plan is made. A pure function. NULL for an op that only fills a parameter (eng_param.init_op).  Thread: [plan] */
  eng_status (*infer)(const eng_call *, eng_desc *out, uint32_t cap, uint32_t *n_out, eng_error *);
  /* Multiplications and additions of one use, for reports, at least 0; NULL: not worth counting.  Thread: [plan] */
  double (*flops)(const eng_call *);
  /* Emits the backward of one node and gives the gradient of each wanted input, from those of the outputs.
   * What it reads is what the op keeps for the backward. Called if a gradient is wanted; NULL: the op has
   * none, which is an error where one is needed.  Thread: [plan] */
  eng_status (*grad)(eng_gradient *, eng_error *);
  const eng_in_place *in_place;
  uint32_t n_in_place;
  uint32_t reserved;
  /* Emits what computes the next positions of a running sequence and gives what stands for each output. NULL:
   * models with this op cannot generate, unless it works by position.  Thread: [plan] */
  eng_status (*step)(eng_stepping *, eng_error *);
} eng_op;

/* Kind "eng.ops/1": the ops of a plugin; the name in the description is free.
 *   Owner: plugin.  Valid: for ever.  since 1.0 */
typedef struct eng_ops {
  uint32_t struct_size;
  uint32_t count;
  const eng_op *const *ops;
} eng_ops;

#ifdef __cplusplus
}
#endif
#endif
