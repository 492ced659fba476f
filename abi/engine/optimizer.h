/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/optimizer.h - kind "eng.optimizer/1": hyper-parameters, states, and the ops that update.
 *
 * An optimizer never sees memory, devices or ranks. It says which states a parameter has, and emits ops for runs of
 * elements. Numbers that depend on the update (bias corrections) come from a table that the host fills from `scalars`,
 * so a step needs no host.
 *
 * Most optimizers work element by element (granularity 1, no `shape` in their states). Their `update` is called once
 * per run, with ENG_STAGE_UPDATE, and the stages below do not concern them. An optimizer that must see a parameter as a
 * whole, such as one that orthogonalises matrices or has statistics per row, says so for that parameter
 * (eng_state_shape.whole, ENG_STATE_SHAPED) or for all (granularity 0). Its `update` is then called in three stages
 * instead of one:
 *
 *   ENG_STAGE_BEFORE  element by element, on what this rank keeps; for example momentum. Its result in `grad` is
 *                     gathered from all ranks.
 *   ENG_STAGE_WHOLE   one parameter at a time: `grad` is the whole of it, in its shape. Every rank computes the same
 *                     and gets the same bits. Its result in `grad` is passed to the next stage.
 *   ENG_STAGE_AFTER   element by element again, on what this rank keeps: here the master is updated.
 *
 * So one program works on one rank and with every way of distributing states over ranks.
 */
#ifndef ENGINE_OPTIMIZER_H_
#define ENGINE_OPTIMIZER_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_OPTIMIZER_KIND "eng.optimizer/1"
#define ENG_OPTIMIZER_DRAFT "eng.optimizer/1-draft6" /* for the description: see engine/plugin.h */

/* A parameter as an optimizer sees it. `options` are those of `create` as they hold for this parameter: keys that the
 * schema marks per_group (engine/plugin.h) have the value of the parameter's group in the configuration.
 *   Owner: host.  Valid: during the call it was passed to.  since 1.0 */
typedef struct eng_parameter {
  uint32_t struct_size;
  uint32_t flags;   /* ENG_PARAM_* */
  const char *name; /* its name in checkpoints */
  const eng_desc *shape;
  const eng_options *options;
  uint32_t block;  /* the first block that lists it, counted from 0 */
  uint32_t blocks; /* number of blocks of the model; the first and the last one are not layers */
  uint32_t number; /* from 0, in the order of declaration */
  uint32_t reserved;
} eng_parameter;

/* The number of values of a state per parameter. */
#define ENG_STATE_ELEMENTS 1 /* one per element */
#define ENG_STATE_BLOCKS 2   /* one per `block` elements: n = ceil(count / block); the last block may be shorter */
#define ENG_STATE_SHAPED 3   /* a tensor of `dims`, for instance one value per row */
#define ENG_STATE_NONE 4     /* none: this parameter has no such state */

/* The shape of one state of one parameter. The host sets struct_size and kind = ENG_STATE_ELEMENTS; everything else is
 * 0. If elements are distributed over ranks, states of elements and blocks are divided with them. A shaped state is
 * whole on every rank.  since 1.0 */
typedef struct eng_state_shape {
  uint32_t struct_size;
  uint32_t kind;  /* ENG_STATE_* */
  uint32_t block; /* of ENG_STATE_BLOCKS: a divisor of 4,096 */
  uint32_t whole; /* 1: the parameter is updated in the three stages above; implied by ENG_STATE_SHAPED */
  uint32_t ndim;  /* of ENG_STATE_SHAPED; so is dims */
  uint32_t reserved;
  int64_t dims[ENG_MAX_DIMS];
} eng_state_shape;

/* One state, for example { "exp_avg", ENG_F32 }. It is zero before the first update. Names of states differ from each
 * other and from "parameter", "gradient" and "policy", and have 1 to 1000 bytes. Checkpoints store a state as PARAMETER.NAME. The
 * host passes a zeroed list of these. The struct never grows; future additions will be in eng_state_shape.
 *   since 1.0 */
typedef struct eng_state_rule {
  const char *name; /* Owner: plugin.  Valid: until the process ends */
  int32_t dtype;    /* any of ENG_F32 ... ENG_U8; one f32 per element may be kept as the precision policy says */
  int32_t reserved;
  /* Says what a parameter has of this state. Called for every parameter, and more than once. The same parameter must
   * always get the same answer. NULL: every parameter has one value per element.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*shape)(void *self, const eng_parameter *, eng_state_shape *io, eng_error *);
} eng_state_rule;

/* The part of a run that belongs to one parameter: its elements first .. first + count - 1, at element `offset` of the
 * run. The struct never grows; future additions will be in eng_parameter. first and offset are multiples of 4,096.
 * since 1.0 */
typedef struct eng_range {
  const eng_parameter *parameter;
  uint64_t first;
  uint64_t count;
  uint64_t offset;
} eng_range;

#define ENG_STAGE_UPDATE 0 /* the whole update, element by element */
#define ENG_STAGE_BEFORE 1
#define ENG_STAGE_WHOLE 2
#define ENG_STAGE_AFTER 3

/* A run of elements to update.
 * The parameters of a run have equal flags, equal options and the same states. A run may contain padding: elements of
 * no parameter. Their gradient is 0, and what an update makes of them has no effect.
 * In all stages except ENG_STAGE_WHOLE, the ids are flat values of equal length, and shaped states are 0. (A state of
 * blocks has that length / block.) In ENG_STAGE_WHOLE, `grad` and the shaped states have their shapes, and everything
 * else except `scalars` is 0. A state that the parameters of the run do not have is 0 as well.
 * `scalars` is f32[32], laid out in engine/ops.h. If the parameters' group has a learning_rate_scale, the rate there is
 * already scaled. `grad` has not been multiplied by scalars[ENG_S_CLIP].
 * `weight_out` is what becomes of these elements in the weight, if that has another dtype than the master and the
 * precision policy casts (ENG_AXIS_CASTS, engine/policy.h); otherwise it is 0, and so it is in ENG_STAGE_BEFORE. An
 * update may fill it from the new master, rounded as eng.cast/1 rounds; it must then write all of it. This saves the
 * engine a pass over memory, wherever the weight goes from there. If the update writes nothing to it, the engine makes
 * the weight from the master after the update.
 * The master and states may have 16 bits, if the precision policy says so. The ops that update them then round at random
 * (engine/ops.h), from `counters`, i64[8], and `seed`, that of the run. An optimizer without such ops answers
 * ENG_UNSUPPORTED.
 * The update may write every value except `scalars` and `counters`.
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
  uint32_t stage;          /* ENG_STAGE_* */
  const eng_range *ranges; /* by offset */
  uint32_t n_ranges;
  eng_id counters;
  int64_t seed;
} eng_update;

typedef struct eng_optimizer {
  uint32_t struct_size;
  uint32_t granularity; /* number of elements that must stay together, a divisor of 4,096; 1 for element-wise updates;
                           0: every parameter is updated in the three stages above */
  /* The options are the plugin's own. They also have "learning_rate", and two keys of the engine: "train.steps" (int),
   * the number of updates of the run, and "train.peak_rate" (float), the highest rate of its schedule. The engine also
   * makes an object with the options of each group, to check them.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Writes up to `cap` rules, and their number.  Call: [plan & created]  since 1.0 */
  eng_status (*states)(void *self, eng_state_rule *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Numbers for update k (k = 1, 2, ...), which follow the learning rate in the scalars. n is at most 7, and the same
   * for every k. A pure function. It is called with k = 1 while a plan is made, and for every update of the run before
   * the first step.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*scalars)(void *self, uint64_t k, float *out, uint32_t cap, uint32_t *n, eng_error *);
  /* Emits the ops that update one run in place: their outputs name ids of `run`. An op of the plugin's own has an
   * eng_in_place pair (engine/op.h) for each output that names one of its inputs: else the plan is refused. If a pair
   * has `must`, the named output must be that input; otherwise the op is refused. If no op is emitted, the run stays
   * unchanged.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_update *run, eng_error *);
} eng_optimizer;

#ifdef __cplusplus
}
#endif
#endif
