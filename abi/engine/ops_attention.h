/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops_attention.h - attention within a window, and with capped scores, for those who emit it and those who compute
 * it. Notation and rules are those of engine/ops.h.
 *
 * They are ops of their own, not attributes of eng.attention/1: a device that does not know them has no kernel for them,
 * and a plan for it is refused.
 */
#ifndef ENGINE_OPS_ATTENTION_H_
#define ENGINE_OPS_ATTENTION_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As eng.attention/1, with two changes of its scores s = scale q k^T:
 *   softcap > 0: s becomes softcap tanh(s / softcap), before the mask. Bello et al. 2016; Gemma 2, 2024.
 *   window > 0: position t attends to itself and at most the window - 1 positions before it, with segments to those of
 *     them from start(b, t) on. Child et al. 2019, as Hugging Face's sliding_window counts.
 * 0, or an absent attribute, changes nothing; without both, the bits are those of eng.attention/1.
 * in, out: as eng.attention/1. attrs: heads i, kv_heads i, scale f, [window i], [softcap f]. */
#define ENG_OP_ATTENTION_WINDOW "eng.attention_window/1"
/* in, out: as eng.attention_grad/1. attrs as attention_window. Only the engine emits it. */
#define ENG_OP_ATTENTION_WINDOW_GRAD "eng.attention_window_grad/1"
/* in, out: as eng.attention_step/1. Query i attends to rows max(0, p + i - window + 1) .. p + i. attrs as
 * attention_window. Only the engine emits it. */
#define ENG_OP_ATTENTION_WINDOW_STEP "eng.attention_window_step/1"

/* `segments_or_0`: 0 if each sample is one document. `window`, `softcap`: 0 for none; with neither, this emits
 * eng.attention/1. */
static inline eng_id eng_attention_window_in(eng_build *b, eng_id q, eng_id k, eng_id v, eng_id segments_or_0,
                                             int64_t heads, int64_t kv_heads, double scale, int64_t window,
                                             double softcap) {
  eng_id in[4], out[2] = {0, 0};
  eng_attr attrs[5] = {{"heads", 0, 0}, {"kv_heads", 0, 0}, {"scale", 0, 0}, {"window", 0, 0}, {"softcap", 0, 0}};
  if (window == 0 && softcap == 0) return eng_attention_in(b, q, k, v, segments_or_0, heads, kv_heads, scale);
  attrs[0].i = heads, attrs[1].i = kv_heads, attrs[2].f = scale, attrs[3].i = window, attrs[4].f = softcap;
  in[0] = q, in[1] = k, in[2] = v, in[3] = segments_or_0;
  b->api->emit(b, ENG_OP_ATTENTION_WINDOW, in, segments_or_0 ? 4 : 3, out, 2, attrs, 5, 0);
  return out[0];
}

#ifdef __cplusplus
}
#endif
#endif
