/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/policy.h - policies that answer for one axis of a state's home.
 *
 * A home is where a state lives between uses: tier x partition x dtype. Each policy fills its own field
 * and emits the ops that cross it. "eng.precision/1" owns `dtype`, "eng.zero/1" owns `part`. A policy acts while the
 * program is built and is inert while a step runs. What it must remember from step to step are tensors of its own.
 */
#ifndef ENGINE_POLICY_H_
#define ENGINE_POLICY_H_

#include "build.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_PRECISION_KIND "eng.precision/1"
#define ENG_PRECISION_DRAFT "precision-2" /* see engine/plugin.h */
#undef ENG_DRAFT_PRECISION_
#define ENG_DRAFT_PRECISION_ "'" ENG_PRECISION_KIND "' = '" ENG_PRECISION_DRAFT "'\n"
#define ENG_ZERO_KIND "eng.zero/1" /* how states are spread over ranks; not asked where there is one rank */
#define ENG_ZERO_DRAFT "zero-2"    /* see engine/plugin.h */
#undef ENG_DRAFT_ZERO_
#define ENG_DRAFT_ZERO_ "'" ENG_ZERO_KIND "' = '" ENG_ZERO_DRAFT "'\n"

/* What a state is for. */
#define ENG_ROLE_WEIGHT 1  /* what compute reads; in another dtype than ENG_ROLE_ACT, it is converted for each use */
#define ENG_ROLE_MASTER 2  /* what the optimizer updates */
#define ENG_ROLE_STATE 3   /* optimizer state; its dtype is the optimizer's */
#define ENG_ROLE_PARTIAL 4 /* this rank's fresh gradient of one micro-batch: sums over ranks are made in its dtype */
#define ENG_ROLE_GRAD 5    /* the reduced, accumulated gradient: micro-batches are added in its dtype */
#define ENG_ROLE_ACT 6     /* activations */

/* The parameters of one block that share a weight dtype, laid out flat.  since 1.0 */
typedef struct eng_unit {
  uint32_t struct_size;
  eng_id id;
  uint32_t block;
  uint32_t flags; /* ENG_PARAM_FP32 if its parameters must stay fp32 */
  uint64_t count; /* elements, padding included */
} eng_unit;

/* All a policy knows of a state at its home.  since 1.0 */
typedef struct eng_view {
  uint32_t struct_size;
  int32_t dtype;
  int32_t tier; /* 0: the device */
  eng_id part;  /* 0: whole */
  uint64_t count;
} eng_view;

/* A tensor of the policy's own: the same on every rank, zero before the first step of a run, kept from step to step and
 * in checkpoints. A run that goes on with another policy drops it. The host gives a zeroed list of these, so the struct
 * never grows.  since 1.0 */
typedef struct eng_policy_state {
  const char *name; /* unique among the policy's; at most 1000 bytes.  Owner: plugin.  Valid: until destroy */
  eng_desc shape;
} eng_policy_state;

/* Once per update: after the global norm is known, before the first parameter is updated. `states` may be written; all
 * ranks must write the same. `scalars` is f32[32], laid out in engine/ops.h; it may not be written.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_policy_update {
  uint32_t struct_size;
  uint32_t n_states;
  const eng_id *states; /* in the order of eng_axis.states */
  eng_id scalars;
  uint32_t reserved;
} eng_policy_update;

/* A state, or one piece of it, to be taken from one home to another that differs on this policy's axis only.
 * A part of a piece with n elements is its elements [index * n / count, (index + 1) * n / count), and n / count is a
 * multiple of 4,096. For ENG_ROLE_GRAD from the whole, `src` is this rank's own gradient and `dst` the sum over all ranks,
 * by eng.fold/1 over the ranks in order, or over sub-trees of that.  since 1.0 */
/* What an "eng.zero/1" is asked to move, every piece of a unit by a call of its own:
 *   ENG_ROLE_GRAD    whole -> its part    always, after each micro-batch (or the last one: [train] reduce): a sum
 *   ENG_ROLE_GRAD    part -> whole        where the master is whole: the whole gradient for the update
 *   ENG_ROLE_WEIGHT  part -> whole        where weights live in parts: gathered for each use; and where the master lives
 *                                         in parts and the weight is whole: the new weight
 *   ENG_ROLE_STATE   part -> whole        where masters and gradients live in parts, and the optimizer updates parameters
 *                                         whole: what its first stage left (engine/optimizer.h), in the gradient's part
 * Other moves are answered with ENG_UNSUPPORTED.
 *
 * What an "eng.precision/1" is asked to move, from one dtype to another, mostly by eng.cast/1:
 *   ENG_ROLE_WEIGHT  the new weight from its master; and the weight, for a use, where compute reads another dtype
 *   ENG_ROLE_GRAD    the fresh gradient to the dtype of ENG_ROLE_PARTIAL, and their sum to that of ENG_ROLE_GRAD
 * Values get narrower before they move between ranks and wider after it. Sums move as ENG_ROLE_PARTIAL says. */
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
  uint32_t reserved;
} eng_move;

/* eng_axis.flags of "eng.precision/1": its moves round as eng.cast/1 does. The optimizer may then write the new weight
 * itself (eng_update.weight_out), instead of a move of the policy. */
#define ENG_AXIS_CASTS 1u

typedef struct eng_axis {
  uint32_t struct_size;
  uint32_t minor;
  /* May ask the builder for the world and, of "eng.zero/1", make groups and parts.
   *   Owner: caller, until destroy.  Thread: [plan]  since 1.0 */
  eng_status (*create)(const eng_options *, eng_build *, void **self, eng_error *);
  void (*destroy)(void *self);
  /* Fills this policy's own field of `io`; the host compares the others afterwards. `unit` is NULL for
   * ENG_ROLE_ACT. The field holds f32, or the whole, on entry. Dtypes are floating ones. Asked of every unit and role, and
   * more than once; equal questions get equal answers. `piece` is 0: a state has one home.
   *   Thread: [plan], before any action exists  since 1.0 */
  eng_status (*place)(void *self, const eng_unit *unit, uint32_t piece, int32_t role, eng_view *io, eng_error *);
  /* Emits ops that write all of `dst` from `src`, which they may not write. Called only where two homes differ on this
   * axis, and, of "eng.zero/1", for every piece of ENG_ROLE_GRAD. Where in the step the ops run is the host's choice: a
   * new weight may be moved behind the update, or at the begin of the next step. One state may be moved in several
   * places, each by a call of its own.  Thread: [plan]  since 1.0 */
  eng_status (*move)(void *self, eng_build *, const eng_move *, eng_error *);
  /* Writes up to `cap` tensors of the policy's own and their number; equal calls get equal answers. Optional: NULL, there
   * are none.  Thread: [plan], before `move`  since 1.0 */
  eng_status (*states)(void *self, eng_policy_state *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits ops that bring these tensors up to date: their outputs name the ids of `update`. Optional: NULL, they keep
   * their values. Not called in a program without an update.  Thread: [plan]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_policy_update *update, eng_error *);
  uint32_t flags; /* ENG_AXIS_* */
  uint32_t reserved;
} eng_axis;

#ifdef __cplusplus
}
#endif
#endif
