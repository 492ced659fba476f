/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/op.h - kind "eng.ops/1": ops that a plugin brings, in addition to the standard ones of engine/ops.h.
 *
 * An op says what the planner must know: the shapes of its outputs, its work, what may share memory, and how it is
 * differentiated. Kernels (engine/kernel.h) say how it is computed, one for each type of device, from the same plugin
 * or another one. Every plugin that a run uses can emit the ops of all plugins that the run uses, including those of
 * its own file. It does not matter which section of the configuration names the plugin: a model, an optimizer or a
 * strategy. A plugin that emits ops of another file lists them in its description (`uses`, engine/plugin.h): the run
 * then uses that file, too, although no section names it. From then on these ops are treated like the standard ones: they are planned, given memory, verified and run
 * in the same way.
 */
#ifndef ENGINE_OP_H_
#define ENGINE_OP_H_

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OPS_KIND "eng.ops/1"
#define ENG_OPS_DRAFT "eng.ops/1-draft7" /* for the description: see engine/plugin.h */

/* An op as it was emitted: its id, inputs (0: absent) and outputs.
 *   Owner: host.  Valid: until eng_op.grad returns.  Frozen.  since 1.0 */
typedef struct eng_node {
  const char *op;
  const eng_id *in;
  const eng_id *out;
  uint32_t n_in;
  uint32_t n_out;
} eng_node;

struct eng_build; /* engine/build.h */
struct eng_gradient_api;

/* The backward of one node while it is derived.  Owner: host.  Valid: until eng_op.grad returns.  since 1.0 */
typedef struct eng_gradient {
  const struct eng_gradient_api *api;
} eng_gradient;

/* Values are ids as in engine/build.h. A gradient has the type and shape of the value that it belongs to. Errors are
 * sticky: after the first failing call, every later call does nothing and returns 0. So a rule needs one check of
 * `status` at its end.
 * All functions:  Call: [plan & inside eng_op.grad], on the thread of that call  since 1.0 */
typedef struct eng_gradient_api {
  uint32_t struct_size;
  uint32_t minor;
  eng_status (*status)(eng_gradient *, eng_error *);
  /* Input and output `k` of the node, as the forward saw them; 0 for an absent optional input. An input or output that
   * the rule passes to an op is kept in memory until the backward. All others are not. */
  eng_id (*in)(eng_gradient *, uint32_t k);
  eng_id (*out)(eng_gradient *, uint32_t k);
  /* Gradient of output `k`, which no op may overwrite; 0 if nothing depends on that output. */
  eng_id (*d_out)(eng_gradient *, uint32_t k);
  /* The gradient of output k if an op of the rule may overwrite it, otherwise 0. */
  eng_id (*own_d_out)(eng_gradient *, uint32_t k);
  /* 1 if the gradient of input `k` is wanted. */
  int32_t (*wants)(eng_gradient *, uint32_t k);
  /* The gradient that input `k` has so far, for an op that adds to it in place. The sum must then be given with `give`.
   * 0 if there is no gradient yet, or if another value still needs it. */
  eng_id (*take)(eng_gradient *, uint32_t k);
  /* Gives this node's contribution to the gradient of input `k`; after a `take` that returned a gradient, the sum. The
   * contributions of several calls are added. An input that is given none gets none from this node, as if the outputs
   * did not depend on it. */
  void (*give)(eng_gradient *, uint32_t k, eng_id gradient);
  eng_status (*shape)(eng_gradient *, eng_id value, eng_desc *out, eng_error *);
  /* The node's attributes.  Owner: host.  Valid: during eng_op.grad. */
  const eng_attr *(*attrs)(eng_gradient *, uint32_t *n);
  /* Appends an op to the backward. As eng_build_api.emit, but every output is a new value. */
  eng_status (*emit)(eng_gradient *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);

  /* For rules that join their work with that of the op before or behind them. Of any value, 0 included: 1 if its
   * gradient is wanted; the gradient that it has so far, which no op may overwrite, or 0. */
  int32_t (*wanted)(eng_gradient *, eng_id value);
  eng_id (*so_far)(eng_gradient *, eng_id value);
  /* The op that made a value, forward or backward. Returns 1, or 0 if no op of this block made it. */
  int32_t (*maker)(eng_gradient *, eng_id value, eng_node *out);

  /* For losses (ENG_OP_FUSED_GRAD): the step's scalars, f32[32] (engine/ops.h); the weight with which output `k` is a
   * term of the loss, 0 if it is none; and that output `k` is `value`, which the backward makes. */
  eng_id (*scalars)(eng_gradient *);
  double (*weight)(eng_gradient *, uint32_t k);
  void (*replaces)(eng_gradient *, uint32_t k, eng_id value);

  /* The number of inputs with which the node was emitted, absent ones included. */
  uint32_t (*inputs)(eng_gradient *);
} eng_gradient_api;

struct eng_stepping_api;

/* One node while the program for the next positions of a running sequence is derived. What was traced for (B, T) is
 * emitted again for (B, n): n positions that follow those of earlier steps.
 *   Owner: host.  Valid: until eng_op.step returns.  since 1.0 */
typedef struct eng_stepping {
  const struct eng_stepping_api *api;
} eng_stepping;

/* Errors are sticky as in eng_gradient_api.
 * All functions:  Call: [plan & inside eng_op.step], on the thread of that call  since 1.0 */
typedef struct eng_stepping_api {
  uint32_t struct_size;
  uint32_t minor;
  eng_status (*status)(eng_stepping *, eng_error *);
  /* The value that replaces input `k` at the next positions; 0 for an absent optional input. */
  eng_id (*in)(eng_stepping *, uint32_t k);
  eng_status (*shape)(eng_stepping *, eng_id value, eng_desc *out, eng_error *);
  /* The node's attributes.  Owner: host.  Valid: during eng_op.step. */
  const eng_attr *(*attrs)(eng_stepping *, uint32_t *n);
  /* A tensor that each block has for itself and that keeps its value from step to step. It is zero before the first
   * position. An op must write it in place: pass it to one op that has a `must` pair for it. */
  eng_id (*state)(eng_stepping *, const eng_desc *);
  /* i64[8]; counters[ENG_C_POSITION] (engine/ops.h) is the first position of the step. */
  eng_id (*counters)(eng_stepping *);
  /* Gives the value that replaces output `k`. Required if an op or block reads that output. */
  void (*give)(eng_stepping *, uint32_t k, eng_id value);
  /* As eng_gradient_api.emit. */
  eng_status (*emit)(eng_stepping *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);
  /* 1 if the traced node has input `k`. For an input that a running sequence does not have, such as segments, `in` is
   * an error. */
  int32_t (*has)(eng_stepping *, uint32_t k);
  /* The number of inputs with which the node was emitted, absent ones included. */
  uint32_t (*inputs)(eng_stepping *);
  /* The largest number of positions of a sequence. */
  int64_t (*length)(eng_stepping *);
  /* Type and shape that input `k` was traced with. If `shape` of what replaces it is the same, it has no positions. */
  eng_status (*traced)(eng_stepping *, uint32_t k, eng_desc *out, eng_error *);
} eng_stepping_api;

/* Output `out` takes the memory of input `in`, which has the same type and number of elements. With `must` it always
 * does, provided that the input is present (accumulators). Without `must` it may: only if nothing reads the input
 * afterwards, the op has it as one input alone, and no other output has taken its memory. A kernel works either way.
 * A model or a gradient rule must not emit an op with a `must` pair whose input is still needed, was not made by an op,
 * or is of another type or number of elements; such a plan is refused.
 * In updates and moves (eng_optimizer, eng_axis, eng_job), the engine chooses nothing: whoever emits the op names its
 * outputs. An output that is also an input needs the pair, without `must` or with it, and names the same bytes; otherwise
 * the plan is refused, and the error names output and input. With `must`, the named output must be that input; an output
 * that is not named, or another one, is refused.  Frozen.  since 1.0 */
typedef struct eng_in_place {
  uint32_t out;
  uint32_t in;
  uint32_t must;
  uint32_t reserved;
} eng_in_place;

/* Input `ids` (i32) has numbers of rows of input `table`: 0 to rows - 1, less the attribute `offset` if there is one. The
 * host checks the fields of the batch that are passed as `ids`, because kernels do not.  Frozen.  since 1.0 */
typedef struct eng_index {
  uint32_t ids;
  uint32_t table;
  uint32_t flags; /* ENG_INDEX_* */
  uint32_t reserved;
} eng_index;
#define ENG_INDEX_TOKENS 1u /* they are token ids: the table must have a row for each of the model's vocabulary */
#define ENG_INDEX_LABELS 2u /* ENG_IGNORE_LABEL is a value too */

/* The op is cheap. If the backward reads output 0 and the inputs are kept anyway, the engine runs the op again and does
 * not keep the output. The same inputs must give the same bits. See eng_op.rebuild. */
#define ENG_OP_CHEAP 1u
/* Each position is computed independently of the others, so the op also serves a running sequence, without `step`. */
#define ENG_OP_BY_POSITION 2u
/* A loss. Its gradient op computes the outputs too, so in training the op itself does not run: `grad` is called where an
 * output is a term of the loss, and calls `replaces` for each such output. No op may read an output. A running sequence
 * has no loss: `step` gives the logits (B, n, V) in place of output 0, and input 0 must be what they are computed from. */
#define ENG_OP_FUSED_GRAD 4u
/* It draws random numbers. Its one output has the type and shape of input 0. In training, the kernel gets the counters
 * (engine/ops.h) as a last input, and the attributes `seed` and `stream`, which is different for each use in a model.
 * In all other programs the op does not run and the output is input 0. */
#define ENG_OP_RANDOM 8u

#define ENG_OP_OUTPUT 0x10000u /* in the list of eng_op.rebuild: ENG_OP_OUTPUT + k is output k */

/* One op. Its id begins with that of the plugin: "org.example.scan/1" for the plugin org.example.
 *   Owner: plugin.  Valid: until the process ends.  since 1.0 */
typedef struct eng_op {
  uint32_t struct_size;
  uint32_t flags; /* ENG_OP_* */
  const char *id;
  uint32_t min_in; /* inputs min_in .. max_in - 1 are optional */
  uint32_t max_in;
  /* Writes the descriptions of the outputs and their number, 1 to `cap`. ENG_INVALID: the text says what is wrong with
   * the inputs or attributes. The call has its inputs and attributes; `n_out` and `parallel` are 0, `device` is NULL. A
   * pure function. It is called for every use of the op, whenever a plan is made. NULL: the op only fills a parameter
   * (eng_param.init_op).
   *   Call: [plan]  since 1.0 */
  eng_status (*infer)(const eng_call *, eng_desc *out, uint32_t cap, uint32_t *n_out, eng_error *);
  /* The number of multiplications and additions of one use, for reports; at least 0. The call also has its outputs.
   * NULL: not worth counting.
   *   Call: [plan]  since 1.0 */
  double (*flops)(const eng_call *);
  /* Emits the backward of one node: gives the gradient of each wanted input, computed from those of the outputs. The
   * inputs and outputs that it reads are those that the op keeps for the backward. Called if a gradient is wanted.
   * NULL: the op has no gradient; it is an error if one is needed.
   *   Call: [plan]  since 1.0 */
  eng_status (*grad)(eng_gradient *, eng_error *);
  const eng_in_place *in_place;
  uint32_t n_in_place;
  /* Bit k: output k is a sum over many rows. Where `infer` gives it 16 bits, the engine may ask the kernel for f32, in
   * that output and in what it is added to. */
  uint32_t sums;
  /* Emits what computes the next positions of a running sequence, and gives the value that replaces each output. NULL:
   * models with this op cannot generate, unless it has ENG_OP_BY_POSITION.
   *   Call: [plan]  since 1.0 */
  eng_status (*step)(eng_stepping *, eng_error *);
  uint32_t optional; /* bit k: input k may be absent although k < min_in */
  /* A model draws the same random numbers with this op as with `counts_as` ops in its place; 0 means 1. For an op that
   * does the work of several. */
  uint32_t counts_as;
  /* For ENG_OP_CHEAP, if the op is to run again with other inputs than those of the node: writes, for each input of that
   * run, the number of the node's input, or ENG_OP_OUTPUT + k for the node's output k. Returns their number, at most
   * `cap`. The call has the node's inputs, outputs and attributes. A pure function. NULL: with the inputs of the node.
   *   Call: [plan]  since 1.0 */
  uint32_t (*rebuild)(const eng_call *, uint32_t *from, uint32_t cap);
  const eng_index *indexes;
  uint32_t n_indexes;
  uint32_t reserved;
  /* For an op that is made of other ops and has no kernels: emits them with the builder, whose `shape`, `emit` and
   * `status` may be used, and writes the values that are the outputs to out[0 .. call->n_out - 1], which are 0 on entry.
   * `in` are the node's inputs, 0 where absent. The call has the node's inputs, outputs and attributes. Types and shapes
   * of the outputs are those of `infer`. Models and gradient rules can use such an op, updates and moves cannot.
   * Without `grad`, its gradient and its next positions are those of the ops that it emits. With `grad`, the op is one
   * node for gradients: what `grad` reads is kept, not what lies inside. Each output must then be made by one of the
   * emitted ops, none of which draws random numbers. NULL: it has kernels.
   *   Call: [plan]  since 1.0 */
  eng_status (*expand)(struct eng_build *, const eng_call *, const eng_id *in, eng_id *out, eng_error *);
} eng_op;

/* Kind "eng.ops/1": the ops of a plugin. The name in the description is free.
 *   Owner: plugin.  Valid: until the process ends.  since 1.0 */
typedef struct eng_ops {
  uint32_t struct_size;
  uint32_t count;
  const eng_op *const *ops;
} eng_ops;

#ifdef __cplusplus
}
#endif
#endif
