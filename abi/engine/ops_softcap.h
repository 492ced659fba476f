/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops_softcap.h - the loss of a model with capped logits, for those who emit it and those who compute it. Notation
 * and rules are those of engine/ops.h. As with engine/ops_attention.h, a device that does not know these ops refuses them.
 */
#ifndef ENGINE_OPS_SOFTCAP_H_
#define ENGINE_OPS_SOFTCAP_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As eng.cross_entropy/1 of logits softcap tanh(x w^T / softcap). Gemma 2, 2024.
 * in, out: as eng.cross_entropy/1. attrs: softcap f > 0, [z_loss f]. */
#define ENG_OP_CAPPED_CROSS_ENTROPY "eng.capped_cross_entropy/1"
/* in, out: as eng.cross_entropy_grad/1. attrs: its own, and softcap. Only the engine emits it. */
#define ENG_OP_CAPPED_CROSS_ENTROPY_GRAD "eng.capped_cross_entropy_grad/1"
/* y = softcap tanh(x / softcap), in place allowed. in: x f32 or f64; out: y. attr: softcap f > 0. Only the engine emits it,
 * for the logits of a running sequence; it has no gradient. */
#define ENG_OP_SOFTCAP "eng.softcap/1"

/* The loss of a language model with capped logits. A model that emits it has a loss of its own: a run that chooses another
 * one, or z_loss, is refused. x (B, T, H), w (V, H), labels (B, T) i32; loss_weights_or_0: (B, T) f32. */
static inline eng_id eng_capped_cross_entropy(eng_build *b, eng_id x, eng_id w, eng_id labels, eng_id loss_weights_or_0,
                                              double softcap) {
  eng_id in[4];
  eng_attr attr = {"softcap", 0, 0};
  attr.f = softcap;
  in[0] = x, in[1] = w, in[2] = labels, in[3] = loss_weights_or_0;
  return eng_emit1(b, ENG_OP_CAPPED_CROSS_ENTROPY, in, loss_weights_or_0 ? 4 : 3, &attr, 1);
}

#ifdef __cplusplus
}
#endif
#endif
