/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/build.h - the builder: what a plugin may do while a step is being planned.
 *
 * A program is made of values (integer ids) and ops between them. Nothing is computed here, and no value has memory
 * yet. Errors are sticky: after the first failing call, every later call returns the same status and makes no value. So
 * a chain of calls needs one check of `status` at its end. The host checks the status, too: a plugin function that
 * returns ENG_OK after an error has failed.
 *
 * An id is valid only in the call that received the builder, such as one call of eng_model.trace. There it comes from a
 * function of the builder or from an argument of the call.
 */
#ifndef ENGINE_BUILD_H_
#define ENGINE_BUILD_H_

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_PARAM_NO_DECAY 1u      /* no weight decay (norms, biases) */
#define ENG_PARAM_FP32 2u          /* stays fp32 under every precision policy */
#define ENG_PARAM_FROZEN 4u        /* keeps its value in training: it has no gradient and no optimizer state */
#define ENG_PARAM_OPTIONAL 8u      /* weights that a run starts from need not have it: it is then initialised */
#define ENG_PARAM_NOT_EXPORTED 16u /* checkpoints have it; what is exported for other programs does not */

/* A parameter as the model, or a transform, declares it.
 * `name` is its name in checkpoints, as the model's Hugging Face files spell it. Names are unique and have 1 to 1000
 * bytes without control characters. A name must not equal PARAMETER.STATE, where PARAMETER is another parameter's name
 * and STATE the name of a state of the optimizer.
 * `init_op` fills the parameter. It is one of the eng.init_* ops (engine/ops.h) or an op of a plugin, and has no
 * inputs. `init` are the attributes that the model gives to it. The engine adds `seed`, `stream` and `first`: see
 * "initialisation" in engine/ops.h.
 * A parameter has 1 to ENG_MAX_DIMS dimensions, each 0 to 2^40. A parameter with a dimension of 0 is declared, stored
 * and loaded like others, but no op accepts it as an input.
 * A parameter that the loss does not depend on has a gradient of zero. The optimizer updates it like any other.
 *   Owner: caller; the host copies all of it, including the lists.  since 1.0 */
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

/* The divisor of a term of the loss, in the batch of a step: of all its micro-batches and ranks. */
#define ENG_PER_LABEL 0u    /* labels that count: those that are not -100 */
#define ENG_PER_SEQUENCE 1u /* sequences, also one without a label that counts */
#define ENG_PER_PAIR 2u     /* pairs of sequences: half as many */

struct eng_build_api;

/* The builder's public head.  Owner: host.  Valid: until the call that received it returns. */
typedef struct eng_build {
  const struct eng_build_api *api;
} eng_build;

/* The range of every piece of a unit that this rank keeps. A piece is divided into `count` equal ranges; this rank
 * keeps the one with number `index`. `group` has `count` members, and this rank is one of them. Each member has a
 * different index, so together they keep everything. `count` divides the number of ranks.  since 1.0 */
typedef struct eng_part {
  uint32_t struct_size;
  uint32_t count;
  uint32_t index;
  eng_id group;
} eng_part;

/* All functions are called on the thread of the call that received the builder, until that call returns. */
typedef struct eng_build_api {
  uint32_t struct_size;
  uint32_t minor;
  /* The first error so far, or ENG_OK.  Call: [plan]  since 1.0 */
  eng_status (*status)(eng_build *, eng_error *);
  /* Type and shape of a value; inside eng_model.declare, of a parameter.
   *   Call: [plan & !inside eng_axis.create]  since 1.0 */
  eng_status (*shape)(eng_build *, eng_id value, eng_desc *out, eng_error *);
  /* Declares a parameter. In a model its id is passed to `block`; in a transform it is a value of the block.
   *   Call: [plan & inside eng_model.declare or eng_transform.apply]  since 1.0 */
  eng_status (*param)(eng_build *, const eng_param *, eng_id *out, eng_error *);
  /* Appends a block. Blocks run in the order in which they are declared. The outputs of one are the inputs of the next.
   * Blocks with equal `tmpl` share one template, which is traced once. Their parameters and inputs must agree in
   * number, type and shape. The first and the last block each have a template of their own. Every parameter must be
   * listed by a block, and may be listed by several (a tied head). The rules for names are those for parameters, but
   * two blocks may have the same name.
   *   Call: [plan & inside eng_model.declare]  since 1.0 */
  eng_status (*block)(eng_build *, const char *name, uint32_t tmpl, const eng_id *params, uint32_t n_params,
                      eng_error *);
  /* A field of the micro-batch, (B, T): "tokens" and "labels", both i32, or another one that the run's data provide
   * (engine/data.h). A label of -100 is ignored. If the data do not provide it, that is an error, which names the model,
   * the field and the source; `offers` asks first. If an op of the standard vocabulary takes values of an i32 field as
   * indices of a table, the host checks what is read against the table.
   *   Call: [plan & inside eng_model.trace or eng_transform.apply]  since 1.0 */
  eng_status (*batch)(eng_build *, const char *name, eng_id *out, eng_error *);
  /* A constant table, which all blocks of the template share. `desc->dtype` is ENG_F32 or ENG_I32. `data` has as many
   * elements as `desc` says; the host copies them.
   *   Call: [plan & inside eng_model.trace or eng_transform.apply]  since 1.0 */
  eng_status (*constant)(eng_build *, const eng_desc *desc, const void *data, eng_id *out, eng_error *);
  /* Emits an op. in[k] = 0 is an absent optional input. If out[k] is 0 on entry, the host makes a new value and writes
   * its id there. If it is not 0, the op writes into that value. Moves and updates may do this, not models. The value
   * must be writable there, and have exactly the type and shape of the output. n_out may be less than the number of the
   * op's outputs, but not more. Attributes that the op does not know are ignored. If an attribute is given twice, the
   * first one counts. Only moves and updates may emit collectives (engine/comm.h), and only if there are several ranks.
   *   Call: [plan & inside eng_model.trace, eng_transform.apply, eng_op.expand, eng_axis.move or update, or
   *   eng_optimizer.update]  since 1.0 */
  eng_status (*emit)(eng_build *, const char *op, const eng_id *in, uint32_t n_in, eng_id *out, uint32_t n_out,
                     const eng_attr *attrs, uint32_t n_attrs, eng_error *);
  /* The rank that this plan is for, and the number of ranks. A model or an op cannot ask: every rank traces the same.
   *   Call: [plan & inside eng_axis.create, move or update, or eng_optimizer.update]  since 1.0 */
  eng_status (*world)(eng_build *, uint32_t *rank, uint32_t *size, eng_error *);
  /* Makes a group of ranks for collectives. Group 1 always exists and contains all ranks. Every rank must make the same
   * groups in the same order.  Call: [plan & inside eng_axis.create]  since 1.0 */
  eng_status (*group)(eng_build *, const uint32_t *ranks, uint32_t n, eng_id *out, eng_error *);
  /* Makes a part, for eng_view.part.  Call: [plan & inside eng_axis.create]  since 1.0 */
  eng_status (*part)(eng_build *, const eng_part *, eng_id *out, eng_error *);
  /* `count` elements of a flat value, from element `first`. They share the memory of the value.
   *   Call: [plan & inside eng_axis.move or update, or eng_optimizer.update]  since 1.0 */
  eng_status (*slice)(eng_build *, eng_id value, uint64_t first, uint64_t count, eng_id *out, eng_error *);
  /* Makes a value a term of the loss: (1) f32, its sum over the tokens of this micro-batch. The loss is the sum over
   * all terms of weight * value / labels that count in the global batch. With weight 0 the value is a metric only, and
   * has no gradient. Every term is reported under its name, as its mean over the labels that count. Names are unique
   * and have 1 to 40 bytes a-z, 0-9, _ and dot; there are at most 64 terms.
   * The gradient of a value with a weight is made by the ops' own rules, from eng.loss_seed/1; that of
   * eng.cross_entropy/1 is fused (engine/ops.h). What a value is made of may come from earlier blocks, as inputs.
   * If a model calls it, the output of its last block must be one of the terms: that of eng.cross_entropy/1, if the
   * model is to generate text. The result of `loss` is one already; if nobody has named it, it gets the name
   * cross_entropy, or `loss` with a plugin of [loss], when the first other one is named. In a reference model, of which
   * only the head's result is wanted, terms are left out. If a model never calls it, the loss is the output of its last
   * block.
   *   Call: [plan & inside eng_model.trace of the last block]  since 1.0 */
  eng_status (*term)(eng_build *, eng_id value, const char *name, double weight, eng_error *);
  /* Asks whether `batch` may ask for this field: *out becomes 1 or 0. All templates of a trace get the same answers.
   * When texts are generated, a sequence is one document and has no loss, so "segments", "positions" and "loss_weights"
   * are not offered.
   *   Call: [plan & inside eng_model.trace or eng_transform.apply]  since 1.0 */
  eng_status (*offers)(eng_build *, const char *name, int32_t *out, eng_error *);
  /* Hands the head to the loss of the run, which [loss] plugin chooses (engine/loss.h): hidden states (B, T, H) and the
   * head's weight (V, H). It names the terms; *out becomes the output of the last block. Without a plugin, the loss is
   * the cross-entropy over "labels", each times "loss_weights" if the data provide them, and with loss.z_loss > 0 that
   * multiple of the z loss (eng_language_loss in engine/ops.h). At most once. A model that never calls it has a loss of
   * its own, and [loss] is refused.
   *   Call: [plan & inside eng_model.trace of the last block]  since 1.0 */
  eng_status (*loss)(eng_build *, eng_id hidden, eng_id weight, eng_id *out, eng_error *);
  /* As `term`, with another divisor than the labels that count: ENG_PER_*. Its value is a sum over what the divisor
   * counts, and it is reported as the mean over that. The output of an op with a fused gradient, such as
   * eng.cross_entropy/1, is divided by labels.
   *   Call: [plan & inside eng_model.trace of the last block]  since 1.0 */
  eng_status (*term_per)(eng_build *, eng_id value, const char *name, double weight, uint32_t per, eng_error *);
} eng_build_api;

/* A field of the micro-batch that a model reads if and only if there is one; otherwise 0, an absent input. An engine
 * that cannot be asked offers none.  since 1.0 */
static inline eng_id eng_offered(eng_build *b, const char *name) {
  int32_t offered = 0;
  eng_id out = 0;
  if (!ENG_HAS(b->api, offers)) return 0;
  if (b->api->offers(b, name, &offered, 0) == 0 && offered) b->api->batch(b, name, &out, 0);
  return out;
}

#ifdef __cplusplus
}
#endif
#endif
