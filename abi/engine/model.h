/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/model.h - kind "eng.model/1": a model as mathematics.
 *
 * A model lists its parameters and blocks once, then traces each distinct block. It knows nothing of dtypes, devices,
 * ranks, sharding or recomputation. Its object exists only while a plan is made: create, describe, then perhaps declare
 * and trace, and destroy. None of its functions runs during a step. The first block has no inputs; it asks the builder
 * for the batch. The last block has one output, the loss: that of eng_head_loss, which the configuration chooses, or one
 * of the model's own, the sum of token losses of eng_cross_entropy. If it has several terms, or is of another op, it is
 * named by eng_build_api.term.
 *
 * State, besides those of engine/base.h
 *   declared  declare returned ENG_OK for the object, which is created
 */
#ifndef ENGINE_MODEL_H_
#define ENGINE_MODEL_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_MODEL_KIND "eng.model/1"
#define ENG_MODEL_DRAFT "eng.model/1-draft3" /* for the description: see engine/plugin.h */

/* Filled by eng_model.describe. The host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_model_info {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t vocabulary;      /* token ids are below this; 1 to 2^31 - 1, at most the rows of the model's tables */
  int64_t attention_width; /* heads x head size of one attention layer, 0 if none; for MFU */
  int64_t layers;
  int64_t max_length; /* longest sequence that the model was made for; 0: no limit */
} eng_model_info;

typedef struct eng_model {
  uint32_t struct_size;
  uint32_t minor;
  /* Reads and checks the options. ENG_INVALID: the text names the key and what to change.
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Called after create.  Call: [setup & created]  since 1.0 */
  eng_status (*describe)(void *self, eng_model_info *out, eng_error *);
  /* Declares parameters and blocks. Called at most once per object.  Call: [plan & created & !declared]  since 1.0 */
  eng_status (*declare)(void *self, eng_build *, eng_error *);
  /* Traces one template. `params` are in the order given to `block`. `in` are the outputs of the block before. Writes
   * the ids of the block's outputs into out[0..cap), and their number, at least 1, into n_out. An id of `in` may be an
   * output again. All ids are valid in this call only. Called once per distinct template. An input can be f32 where the
   * parameters have 16 bits: the policy chooses the type of the residual stream (ENG_ROLE_STREAM in engine/policy.h).
   * The sums and norms of engine/ops.h take such inputs, and a norm gives the type of its weight.
   *   Call: [plan & declared]  since 1.0 */
  eng_status (*trace)(void *self, eng_build *, uint32_t tmpl, const eng_id *params, uint32_t n_params, const eng_id *in,
                      uint32_t n_in, eng_id *out, uint32_t cap, uint32_t *n_out, eng_error *);
} eng_model;

#ifdef __cplusplus
}
#endif
#endif
