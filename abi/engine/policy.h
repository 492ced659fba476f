/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/policy.h - policies that answer for one axis of a state's home.
 *
 * A home is where a state lives between uses: tier x partition x dtype. The tier is the host's to choose ([offload]).
 * Each policy fills its own field of the home, and emits the ops that take a state from one home to another.
 * "eng.precision/1" owns `dtype`, "eng.zero/1" owns `part`. A policy acts while a program is built. It does nothing
 * while a step runs: what it must remember from step to step are tensors of its own.
 */
#ifndef ENGINE_POLICY_H_
#define ENGINE_POLICY_H_

#include "build.h"
#include "packed.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_PRECISION_KIND "eng.precision/1"
#define ENG_PRECISION_DRAFT "eng.precision/1-draft10" /* for the description: see engine/plugin.h */
#define ENG_ZERO_KIND "eng.zero/1"         /* how states are distributed over ranks; not used with one rank */
#define ENG_ZERO_DRAFT "eng.zero/1-draft9" /* for the description: see engine/plugin.h */

/* Roles of a state. */
#define ENG_ROLE_WEIGHT 1 /* what compute reads; converted for each use if its dtype is not that of ENG_ROLE_ACT */
#define ENG_ROLE_MASTER 2 /* what the optimizer updates */
/* optimizer state. The policy's dtype counts where the optimizer keeps f32, one value per element; all others have the
 * optimizer's dtype */
#define ENG_ROLE_STATE 3
#define ENG_ROLE_PARTIAL 4 /* this rank's fresh gradient of one micro-batch, which moves between ranks in its dtype */
#define ENG_ROLE_GRAD 5    /* the reduced, accumulated gradient; micro-batches are added in its dtype */
#define ENG_ROLE_ACT 6     /* activations */
/* A rank's own: what its sums of gradients have left out so far, f32 (eng_move.residual). Only an "eng.zero/1" is asked for its
 * part, if it has ENG_AXIS_RESIDUAL. */
#define ENG_ROLE_RESIDUAL 7
/* The residual stream: what blocks of the model give to each other in floating types. `io` comes with the dtype of ENG_ROLE_ACT; where
 * that has 16 bits, an "eng.precision/1" may make it ENG_F32. The first block's outputs are then cast to it, and each
 * model keeps what it adds to in that type. Only an "eng.precision/1" is asked, with `unit` NULL.  since precision-10 */
#define ENG_ROLE_STREAM 8

/* The parameters of one block that share a weight dtype, laid out flat. Parameters with different kinds of optimizer
 * states, and frozen ones, have units of their own. So have frozen matrices of layers, if the precision policy keeps
 * these in a packed type: parameters with two dimensions of at least 16, except those of the first and the last block
 * and those that must stay fp32.  since 1.0 */
typedef struct eng_unit {
  uint32_t struct_size;
  eng_id id;
  uint32_t block;
  /* ENG_PARAM_FP32 if its parameters must stay fp32; ENG_PARAM_FROZEN if they are matrices that a packed type may keep,
   * also where nothing is trained */
  uint32_t flags;
  uint64_t count; /* elements, padding included */
} eng_unit;

/* Properties of a state at its home.  since 1.0 */
typedef struct eng_view {
  uint32_t struct_size;
  int32_t dtype;
  eng_id part; /* 0: the whole */
  uint32_t reserved;
  uint64_t count;
} eng_view;

/* A tensor of the policy's own: the same on every rank, zero before the first step of a run, kept from step to step and
 * in checkpoints. A run that goes on with another policy drops it. The host gives a zeroed list of these, so the struct
 * never grows.  since 1.0 */
typedef struct eng_policy_state {
  const char *name; /* unique among the policy's; at most 1000 bytes.  Owner: plugin.  Valid: until destroy */
  eng_desc shape;
} eng_policy_state;

/* Arguments of `update` and `begin` of a policy. `scalars` is f32[32], laid out in engine/ops.h.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_policy_update {
  uint32_t struct_size;
  uint32_t n_states;
  const eng_id *states; /* in the order of eng_axis.states */
  eng_id scalars;
  uint32_t reserved;
} eng_policy_update;

/* A state, or one piece of it, to be taken from one home to another that differs only on this policy's axis.
 * A part of a piece with n elements is its elements [index * n / count, (index + 1) * n / count), and n / count is a
 * multiple of 4,096.
 * Evaluation and generation move weights too, and nothing else: what reads a checkpoint without training makes the
 * weight from its master by the same move.
 * A move of ENG_ROLE_GRAD from the whole is a sum: `src` is this rank's own gradient and `dst` the sum over all ranks,
 * made by eng.fold/1 over the ranks in order, or over sub-trees of that. The sum may have a wider dtype than `src`:
 * then every eng.fold/1 makes it in that dtype (its attribute dtype).  since 1.0 */
/* Moves that an "eng.zero/1" is asked for, one call for every piece of a unit. What `place` answered decides which:
 *   ENG_ROLE_GRAD    whole -> its home   always, after each micro-batch or after the last one ([train] reduce): the
 *                                        sum. Its home is the part, or the whole, that `place` answered.
 *   ENG_ROLE_GRAD    part -> whole       if gradients live in parts and the master is whole: the gradient for the
 *                                        update
 *   ENG_ROLE_WEIGHT  part -> whole       if weights live in parts: gathered for each use
 *   ENG_ROLE_WEIGHT  master -> weight    if the two have different parts: the new weight, mostly part -> whole
 *   ENG_ROLE_STATE   part -> whole       if masters and gradients live in parts, and the optimizer updates parameters
 *                                        whole (engine/optimizer.h): the result of its first stage, in the part of the
 *                                        gradient
 * A policy answers every other move with ENG_UNSUPPORTED.
 *
 * Moves that an "eng.precision/1" is asked for, from one dtype to another, usually done by eng.cast/1:
 *   ENG_ROLE_WEIGHT  the new weight from its master; and, for a use, the weight if compute reads another dtype
 *   ENG_ROLE_GRAD    the fresh gradient to the dtype of ENG_ROLE_PARTIAL, and the sum to that of ENG_ROLE_GRAD. If
 *                    ranks first add up their own micro-batches ([train] reduce = "step"), the fresh gradient goes to
 *                    the dtype of ENG_ROLE_GRAD, that sum to the dtype of ENG_ROLE_PARTIAL, and the sum over ranks
 *                    back. A sum over ranks is made in the wider of the two dtypes, so it is only made narrower.
 *   ENG_ROLE_WEIGHT  also from and to a packed type (engine/packed.h), usually done by eng.unpack/1 and eng.pack/1. What
 *                    is packed is a u8 tensor here, in eng_view too: eng_packed_bytes for each 4,096 elements. Initial
 *                    values are packed from f32.
 * An "eng.zero/1" moves packed weights as u8 tensors: a part then is a multiple of eng_packed_bytes, not of 4,096.
 * Values become narrower before they move between ranks, and wider afterwards. Summands move in the dtype of
 * ENG_ROLE_PARTIAL. If that is f32 and activations have 16 bits, the fresh gradient is made in f32, as far as the ops
 * that make it are sums (engine/ops.h). */
typedef struct eng_move {
  uint32_t struct_size;
  int32_t role;
  eng_id unit;
  uint32_t piece;
  eng_id src;
  eng_id dst;
  const eng_view *from;
  const eng_view *to;
  const eng_id *states; /* the policy's own, in the order of eng_axis.states; they may not be written */
  uint32_t n_states;
  /* ENG_AXIS_RESIDUAL: for a sum of ENG_ROLE_GRAD, the piece of this rank's own residual, f32, which the move reads and
   * writes in place; its part is that of ENG_ROLE_RESIDUAL. 0 elsewhere, and where nothing is updated with the gradients:
   * what such a sum leaves out is lost. */
  eng_id residual;
} eng_move;

/* eng_axis.flags of "eng.precision/1": its moves round as eng.cast/1 does. The optimizer may then write the new weight
 * itself (eng_update.weight_out), instead of a move of the policy. */
#define ENG_AXIS_CASTS 1u
/* eng_axis.flags: some of its moves change values on purpose, such as a gather of weights in 8 bits, or rounding within
 * f32. A run with it has other results than one without; the engine says so before it starts, and `engine plugins test`
 * compares losses where it otherwise compares bits. Equal runs must still have equal bits, and all ranks the same
 * values. The new dtype of a state is not meant: everybody sees that in `place`. */
#define ENG_AXIS_LOSSY 2u
/* eng_axis.flags of "eng.zero/1": sums of gradients leave something out, which the next sum adds (error feedback). For
 * every unit with a gradient the host keeps a residual: a tensor of this rank's own, zero before the first step, kept
 * from step to step and in checkpoints. A part of it is one within a group of neighbours: ranks k * n .. k * n + n - 1.
 * A run that goes on with another number of ranks or groups begins with zeros. Not with a loss scale, to which what is
 * left would belong: eng_axis.begin of the precision policy is then refused. */
#define ENG_AXIS_RESIDUAL 4u

typedef struct eng_axis {
  uint32_t struct_size;
  uint32_t minor;
  /* May ask the builder for the world. An "eng.zero/1" may also make groups and parts.
   *   Owner: caller, until destroy.  Call: [plan]  since 1.0 */
  eng_status (*create)(const eng_options *, eng_build *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Fills this policy's own field of `io`. On entry the field holds ENG_F32 (for ENG_ROLE_STREAM: see there), or the whole. The host checks that the
   * other fields are unchanged. Dtypes must be floating types; ENG_ROLE_WEIGHT and ENG_ROLE_MASTER of a unit with ENG_PARAM_FROZEN may
   * be of a packed type, both of the same. `unit` is NULL for ENG_ROLE_ACT and ENG_ROLE_STREAM. Called for every unit
   * and role, and more than once; the same question must get the same answer. In each plan it is called before any op
   * is emitted.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*place)(void *self, const eng_unit *unit, int32_t role, eng_view *io, eng_error *);
  /* Emits ops that write all of `dst` from `src`. They must not write `src`. Called only if two homes differ on this
   * axis; for "eng.zero/1" also for every piece of ENG_ROLE_GRAD. The host decides where in the step the ops run: a new
   * weight may be moved after the update, or at the beginning of the next step. One state may be moved in several
   * places, each with its own call.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*move)(void *self, eng_build *, const eng_move *, eng_error *);
  /* Writes up to `cap` tensors of the policy's own and their number. Equal calls must get equal answers. Called before
   * `move`. Optional: NULL if there are none.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*states)(void *self, eng_policy_state *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits ops that run once per update, after the global norm is known and before the first parameter is updated. They
   * may write `states`, not `scalars`: the outputs of the ops name these ids, and what is an input as well needs a pair
   * (eng_in_place, engine/op.h). All ranks must write the same. Called once
   * for each program with an update of the parameters. Optional: NULL if the tensors keep their values.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_policy_update *update, eng_error *);
  uint32_t flags; /* ENG_AXIS_* */
  uint32_t reserved;
  /* Emits ops that run at the beginning of a step, after eng.begin/1 and before the first block. They may write
   * `scalars`, for example the loss scale (ENG_S_LOSS_SCALE), and not `states`. All ranks must write the same.
   * Optional: NULL if there is nothing to do.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*begin)(void *self, eng_build *, const eng_policy_update *, eng_error *);
  /* Writes the flags of this object, if they depend on its options; they replace `flags`. Optional.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*flags_of)(void *self, uint32_t *flags, eng_error *);
} eng_axis;

#ifdef __cplusplus
}
#endif
#endif
