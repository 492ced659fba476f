/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/optimizer.h - kind "eng.optimizer/1": hyper-parameters, states, and the ops that update.
 *
 * The optimizer never sees memory, devices or ranks: it says which states a parameter has and emits ops for runs of
 * elements. Per-update numbers (bias corrections) are a table the host fills from `scalars`, so the step itself needs no
 * host.
 *
 * An optimizer that works element by element (granularity 1, states as they are found) need not read on: `update` is
 * called once per run, with stage 0. One that must see a parameter as a whole, such as one that orthogonalises matrices
 * or has statistics per row, says so for that parameter (eng_state_shape.whole, ENG_STATE_SHAPED, or granularity 0 for
 * all) and gets three calls in place of one:
 *
 *   ENG_STAGE_BEFORE  element by element, on what this rank keeps: momentum, for example. What it leaves in `grad` is
 *                     brought together from all ranks.
 *   ENG_STAGE_WHOLE   one parameter at a time: `grad` is all of it, in its shape. Every rank computes the same and gets
 *                     the same bits. What it leaves in `grad` is handed to
 *   ENG_STAGE_AFTER   element by element again, on what this rank keeps: there the master is updated.
 *
 * So one program serves one rank and every way of spreading states over ranks.
 */
#ifndef ENGINE_OPTIMIZER_H_
#define ENGINE_OPTIMIZER_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OPTIMIZER_KIND "eng.optimizer/1"
#define ENG_OPTIMIZER_DRAFT "optimizer-2" /* see engine/plugin.h */
#undef ENG_DRAFT_OPTIMIZER_
#define ENG_DRAFT_OPTIMIZER_ "'" ENG_OPTIMIZER_KIND "' = '" ENG_OPTIMIZER_DRAFT "'\n"

/* A parameter as an optimizer sees it. `options` are those of `create` as they hold for this parameter: with the values
 * that its group in the configuration gives to keys which the schema marks per_group (engine/plugin.h).
 *   Owner: host.  Valid: during the call it was passed to.  since 1.0 */
typedef struct eng_parameter {
  uint32_t struct_size;
  uint32_t flags;   /* ENG_PARAM_* */
  const char *name; /* its name in checkpoints */
  const eng_desc *shape;
  const eng_options *options;
  uint32_t block;  /* the first block that lists it, counted from 0 */
  uint32_t blocks; /* how many the model has: layers are neither the first nor the last */
} eng_parameter;

/* How many values a parameter has of a state. */
#define ENG_STATE_ELEMENTS 1 /* one per element */
#define ENG_STATE_BLOCKS 2   /* one per `block` elements, the last block may be shorter: n = ceil(count / block) */
#define ENG_STATE_SHAPED 3   /* a tensor of `dims`, for instance one value per row */
#define ENG_STATE_NONE 4     /* none: this parameter has no such state */

/* What one parameter has of one state. The host sets struct_size and kind = ENG_STATE_ELEMENTS, all else is 0.
 * States of elements and blocks are cut with the elements where those are spread over ranks; a shaped one is whole on
 * every rank.  since 1.0 */
typedef struct eng_state_shape {
  uint32_t struct_size;
  uint32_t kind;  /* ENG_STATE_* */
  uint32_t block; /* of ENG_STATE_BLOCKS: a divisor of 4,096 */
  uint32_t whole; /* 1: the parameter is updated in the three stages above; always so with ENG_STATE_SHAPED */
  uint32_t ndim;  /* of ENG_STATE_SHAPED, as the next */
  uint32_t reserved;
  int64_t dims[ENG_MAX_DIMS];
} eng_state_shape;

/* One state, for example { "exp_avg", ENG_F32 }; zero before the first update. Names differ, are no longer than 1000
 * bytes, and none of "parameter", "gradient", "policy". Checkpoints store it as PARAMETER.NAME. The host gives a zeroed list of
 * these, so the struct never grows: what is to come will be in eng_state_shape.  since 1.0 */
typedef struct eng_state_rule {
  const char *name; /* Owner: plugin.  Valid: for ever */
  int32_t dtype;    /* any of ENG_F32 ... ENG_U8 */
  int32_t reserved;
  /* Says what a parameter has of this state. Asked of every parameter, and more than once; equal questions get equal
   * answers. NULL: every parameter has one value per element.  Thread: [plan] */
  eng_status (*shape)(void *self, const eng_parameter *, eng_state_shape *io, eng_error *);
} eng_state_rule;

/* What a run holds of one parameter: elements first .. first + count - 1 of it, from element `offset` of the run.
 *   Never grows: what is to come will be in eng_parameter.  since 1.0 */
typedef struct eng_extent {
  const eng_parameter *parameter;
  uint64_t first;
  uint64_t count;
  uint64_t offset;
} eng_extent;

#define ENG_STAGE_UPDATE 0 /* the whole update, element by element */
#define ENG_STAGE_BEFORE 1
#define ENG_STAGE_WHOLE 2
#define ENG_STAGE_AFTER 3

/* A run of elements to update. In all stages but ENG_STAGE_WHOLE the ids are flat values of equal length (a state of
 * blocks: of that length / block), and shaped states are 0. In ENG_STAGE_WHOLE `grad` and the shaped states are in their
 * shapes, and all else but `scalars` is 0. A state that the run's parameters do not have is 0 as well. `scalars` is
 * f32[32], laid out in engine/ops.h; with a learning_rate_scale in the parameters' group its rate is already scaled.
 * `grad` is not yet multiplied with scalars[ENG_S_CLIP]. `weight_out` is the weight where it differs from
 * the master in its dtype alone and the precision policy casts (ENG_AXIS_CASTS), and 0 elsewhere. An update that fills it from the new master, rounded as eng.cast/1 does,
 * spares the engine a pass: it writes all of it, or nothing. Left alone, or 0, the engine makes the weight from the master
 * after the update. Values may be written, all but scalars.
 * The parameters of a run have equal flags, equal options and the same states. It may hold padding, elements of no
 * parameter: their gradient is 0, and what an update makes of them has no effect.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_update {
  uint32_t struct_size;
  uint32_t flags; /* ENG_PARAM_* of the run */
  eng_id master;
  eng_id grad;
  eng_id weight_out;
  eng_id scalars;
  const eng_id *states; /* in the order of the rules */
  uint32_t n_states;
  uint32_t stage;            /* ENG_STAGE_* */
  const eng_extent *extents; /* by offset */
  uint32_t n_extents;
  uint32_t reserved;
} eng_update;

typedef struct eng_optimizer {
  uint32_t struct_size;
  uint32_t granularity; /* elements that must stay together, a divisor of 4,096; 1 for element-wise updates; 0: every
                           parameter is updated in the three stages above */
  /* The options are the plugin's own, and besides "learning_rate", and of the engine's own "train.steps" (int) and
   * "train.peak_rate" (float): the number of updates of the run, and the highest rate of its schedule.
   *   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  void (*destroy)(void *self);
  /* Writes up to `cap` rules and their number.  Thread: [plan]  since 1.0 */
  eng_status (*states)(void *self, eng_state_rule *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Numbers for update k (k = 1, 2, ...), put after the learning rate into the scalars. n is at most 7, and the same for
   * every k. A pure function.  Thread: [setup]  since 1.0 */
  eng_status (*scalars)(void *self, uint64_t k, float *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits the ops that update one run in place: their outputs name the ids of `run`. An op whose outputs are so named
   * needs no eng_in_place pairs; one that has pairs with `must` is refused where the named output is not that input.
   * None: the run stays as it is.  Thread: [plan]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_update *run, eng_error *);
} eng_optimizer;

#ifdef __cplusplus
}
#endif
#endif
