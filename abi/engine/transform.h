/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/transform.h - kind "eng.transform/1": changes what a model computes, without the model knowing it.
 *
 * A transform works on the forward of a traced model, before its backward is derived. The host shows it the calls of
 * every block: op, inputs, attributes and parameters. For each call the transform may emit other ops that give the same
 * outputs, and declare parameters of its own for them. It may also change the flags of parameters, for example freeze
 * them. From then on its ops and parameters are those of the model: they are differentiated, recomputed, distributed,
 * offloaded and stored like all others. A transform may keep tensors of its own from step to step, which its ops read.
 *
 * Several transforms work in the order of the configuration. Each sees what those before it left. Blocks that still
 * have equal ops and shapes afterwards share one template, as before.
 *
 * A transform acts while a program is built, and does nothing while a step runs. Every program (training, evaluation,
 * generation) and every rank calls it: equal calls must get equal answers.
 */
#ifndef ENGINE_TRANSFORM_H_
#define ENGINE_TRANSFORM_H_

#include "policy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_TRANSFORM_KIND "eng.transform/1"
#define ENG_TRANSFORM_DRAFT "eng.transform/1-draft2" /* for the description: see engine/plugin.h */

/* A parameter of the model. The host gives a list of these, so the struct never grows.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_transform_param {
  const char *name;     /* in checkpoints */
  const char *added_by; /* the name of the transform that declared it; "": the model did */
  const eng_desc *shape;
  uint32_t flags;    /* ENG_PARAM_* */
  uint32_t input;    /* of a call: which of its inputs */
  uint32_t targeted; /* of a call: 1 if one of `targets` matches it, or if there are none */
  uint32_t reserved;
} eng_transform_param;

/* A call of an op in the forward of a block. Inputs, outputs and attributes are in the order of the op's contract.
 *   Owner: host.  Valid: during the call.  since 1.0 */
typedef struct eng_transform_call {
  uint32_t struct_size;
  uint32_t number;  /* of the call in its block, from 0 */
  const char *op;   /* its id */
  const char *name; /* of the block */
  uint32_t block;   /* its number, from 0 */
  uint32_t blocks;  /* of the model; the first and the last one are not layers */
  const eng_id *in; /* 0: an absent optional input */
  const eng_desc *out;
  const eng_attr *attrs;
  const eng_transform_param *params; /* those among the inputs */
  uint32_t n_in;
  uint32_t n_out;
  uint32_t n_attrs;
  uint32_t n_params;
  const eng_id *states; /* of this call: in the order of eng_transform.states. In a call of that there are none */
  uint32_t n_states;
  uint32_t reserved;
} eng_transform_call;

typedef struct eng_transform {
  uint32_t struct_size;
  uint32_t minor;
  /* The options are those of the plugin, and `name` and `targets` of the entry of [[transforms]].
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Replaces one call, or leaves it as it is.
   * With `targets` in the configuration, the host shows only calls with a parameter of which a target matches the name,
   * or the name without its last part: "*.q_proj" matches "layers.0.q_proj.weight". Otherwise it shows all calls.
   * `out` has n_out ids, 0 on entry. If they stay 0, the call stays, and nothing may have been declared or emitted. To
   * replace the call, the transform emits ops and writes the ids of values with the type and shape of the outputs. An
   * id may stay 0 where no op and no block reads that output, such as the mask that only a gradient needs. Values are
   * those of `in`, of parameters and of ops emitted in this call. Emitting the same op with the same inputs and
   * attributes keeps the call, random numbers included.
   * The builder also has `param`: it declares a parameter of this block. Names must not be those of another parameter,
   * so a transform derives them from those of the call. If two blocks with equal ops are to share a template, the
   * transform must treat them alike.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*apply)(void *self, eng_build *, const eng_transform_call *, eng_id *out, eng_error *);
  /* Changes the flags of a parameter that was there before this transform: adds or removes ENG_PARAM_FROZEN and
   * ENG_PARAM_NOT_EXPORTED, no others. Called once for each parameter, before `apply`. Optional: NULL if flags stay.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*flags)(void *self, const eng_transform_param *, uint32_t *io, eng_error *);
  /* Writes the states of a call that `apply` will replace, up to `cap`, and their number; none of a call that stays.
   * A state is an f32 tensor that belongs to this call of this block: the same on every rank, zero before the first
   * step of a run, kept from step to step and in checkpoints, as "transform.NAME.STATE". Names are unique among those
   * of the transform. Blocks that share a template have states of their own.
   * Any op of the block may read a state. Only an op of the backward that has a `must` pair for it may write it, as the
   * last one that reads it: evaluations change no state, and a forward may run more than once. What micro-batches and
   * ranks write differs, until `update` makes it equal. Called before `apply`. Optional: NULL if there are none.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*states)(void *self, const eng_transform_call *, eng_policy_state *out, uint32_t cap, uint32_t *n,
                       eng_error *);
  /* Emits ops that run once per update, after the global norm is known and before the first parameter is updated, also
   * where an update is skipped (ENG_S_OK). update->states has one id: all states of the transform behind each other, f32
   * (n), in the order of blocks, then of calls. The ops may write it. They must write the same on all ranks, of which
   * `world` tells the number, and group 1 of collectives means all of these. A rank of a pipeline has only written the
   * states of its own blocks. Optional: NULL if nothing is done once per update. Not called without states.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*update)(void *self, eng_build *, const eng_policy_update *update, eng_error *);
} eng_transform;

#ifdef __cplusplus
}
#endif
#endif
