/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/loss.h - kind "eng.loss/1": what a model is trained for.
 *
 * A model hands the hidden states of its head and the head's weight to eng_build_api.loss. The host passes both to the
 * loss that [loss] plugin chooses, which makes the terms of the loss of them and of fields of the batch. Without such a
 * plugin, it is the cross-entropy over the labels.
 *
 * A loss acts while a program is built, and does nothing while a step runs. Training and evaluation call it; text is
 * generated without it. Its ops are those of the model's last block: they are differentiated, recomputed and distributed
 * like all others. Every rank calls it: equal calls must get equal answers.
 */
#ifndef ENGINE_LOSS_H_
#define ENGINE_LOSS_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_LOSS_KIND "eng.loss/1"
#define ENG_LOSS_DRAFT "eng.loss/1-draft1" /* for the description: see engine/plugin.h */

typedef struct eng_loss {
  uint32_t struct_size;
  uint32_t minor;
  /* The options are those of [loss].
   *   Owner: caller, until destroy.  Call: [setup]  since 1.0 */
  eng_status (*create)(const eng_options *, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*destroy)(void *self);
  /* Traces the loss of a micro-batch of B sequences of T tokens. `hidden` is (B, T, H), `weight` (V, H): the logits are
   * their product. The builder is that of eng_model.trace of the last block. Labels, weights of labels and segments are
   * its fields "labels", "loss_weights" and "segments"; a loss may ask for any other field that the data provide.
   * With [reference] in the configuration there is "reference_logprobs", f32: the log-probabilities that a frozen second
   * model gives to the labels.
   * Terms are named by eng_build_api.term. Writes the output of the last block into `out`: one of the terms, or, without
   * named terms, the loss, which is then an op with a fused gradient, such as eng.cross_entropy/1.
   * Evaluations report perplexity if a term is the output of eng.cross_entropy/1.
   *   Call: [plan & created]  since 1.0 */
  eng_status (*trace)(void *self, eng_build *, eng_id hidden, eng_id weight, eng_id *out, eng_error *);
} eng_loss;

/* Log-probabilities (B, T) of labels (B, T), from hidden states (B, T, H) and the head's weight (V, H). */
static inline eng_id eng_label_logprob(eng_build *b, eng_id x, eng_id w, eng_id labels) {
  eng_id in[3];
  in[0] = x, in[1] = w, in[2] = labels;
  return eng_emit1(b, ENG_OP_LABEL_LOGPROB, in, 3, 0, 0);
}

#ifdef __cplusplus
}
#endif
#endif
