/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/model.h - kind "eng.model/1": a model as mathematics.
 *
 * A model lists its parameters and blocks once, then traces each distinct block. It knows nothing of
 * dtypes, devices, ranks, sharding, recomputation. Its object lives while a plan is made: create, describe, then
 * perhaps declare and trace, destroy. None of it runs during a step. The first block has no inputs (it asks the builder
 * for the batch); the last one has one output: the sum of token losses, from eng_cross_entropy.
 */
#ifndef ENGINE_MODEL_H_
#define ENGINE_MODEL_H_

#include "build.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_MODEL_KIND "eng.model/1"
#define ENG_MODEL_DRAFT "model-1" /* see engine/plugin.h */
#undef ENG_DRAFT_MODEL_
#define ENG_DRAFT_MODEL_ "'" ENG_MODEL_KIND "' = '" ENG_MODEL_DRAFT "'\n"

/* Filled by eng_model.describe; the host zeroes it and sets struct_size.  since 1.0 */
typedef struct eng_model_info {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t vocabulary;      /* token ids are below this: 1 to 2^31 - 1, no more than the tables of the model have rows */
  int64_t attention_width; /* heads x head size of one attention layer, 0 if none: MFU */
  int64_t layers;
  int64_t max_length; /* longest sequence the model was made for; 0: no limit */
} eng_model_info;

typedef struct eng_model {
  uint32_t struct_size;
  uint32_t minor;
  /* Reads and checks the options; ENG_INVALID names the key and what to change.
   *   Owner: caller, until destroy.  Thread: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  void (*destroy)(void *self);
  eng_status (*describe)(void *self, eng_model_info *out, eng_error *);
  /* Declares parameters and blocks.  Thread: [plan], once per program  since 1.0 */
  eng_status (*declare)(void *self, eng_build *, eng_error *);
  /* Traces one template: `params` in the order given to `block`, `in` the outputs of the block before.
   * Writes the ids of the block's outputs into out[0..cap) and their number, at least 1, into n_out. All ids are those of
   * this call alone. Any of `in` may be put out again.
   *   Thread: [plan], once per distinct template  since 1.0 */
  eng_status (*trace)(void *self, eng_build *, uint32_t tmpl, const eng_id *params, uint32_t n_params, const eng_id *in,
                      uint32_t n_in, eng_id *out, uint32_t cap, uint32_t *n_out, eng_error *);
} eng_model;

#ifdef __cplusplus
}
#endif
#endif
