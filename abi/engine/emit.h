/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/emit.h - a function for each op of engine/ops.h that models emit. engine/ops.h includes it.
 * Each returns the id of the op's result, or 0 after an error (see eng_build_api.status).
 */
#ifndef ENGINE_EMIT_H_
#define ENGINE_EMIT_H_

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline eng_id eng_emit1(eng_build *b, const char *op, const eng_id *in, uint32_t n_in, const eng_attr *attrs,
                               uint32_t n_attrs) {
  eng_id out = 0;
  b->api->emit(b, op, in, n_in, &out, 1, attrs, n_attrs, 0);
  return out;
}

static inline eng_id eng_linear(eng_build *b, eng_id x, eng_id w, eng_id bias_or_0) {
  eng_id in[3];
  in[0] = x, in[1] = w, in[2] = bias_or_0;
  return eng_emit1(b, ENG_OP_LINEAR, in, 3, 0, 0);
}

static inline eng_id eng_embedding(eng_build *b, eng_id tokens, eng_id table) {
  eng_id in[2];
  in[0] = tokens, in[1] = table;
  return eng_emit1(b, ENG_OP_EMBEDDING, in, 2, 0, 0);
}

static inline eng_id eng_rms_norm(eng_build *b, eng_id x, eng_id w, double eps) {
  eng_id in[3], out[2] = {0, 0};
  eng_attr attr = {"eps", 0, eps};
  in[0] = x, in[1] = w, in[2] = 0;
  b->api->emit(b, ENG_OP_RMS_NORM, in, 3, out, 2, &attr, 1, 0);
  return out[0];
}

/* The residual stream and its norm in one op: *sum = x + residual; returns rms_norm(*sum). */
static inline eng_id eng_add_rms_norm(eng_build *b, eng_id x, eng_id residual, eng_id w, double eps, eng_id *sum) {
  eng_id in[3], out[3] = {0, 0, 0};
  eng_attr attr = {"eps", 0, eps};
  in[0] = x, in[1] = w, in[2] = residual;
  b->api->emit(b, ENG_OP_RMS_NORM, in, 3, out, 3, &attr, 1, 0);
  *sum = out[2];
  return out[0];
}

/* `w_or_0` and `bias_or_0`: 0 if absent. */
static inline eng_id eng_layer_norm(eng_build *b, eng_id x, eng_id w_or_0, eng_id bias_or_0, double eps) {
  eng_id in[4], out[2] = {0, 0};
  eng_attr attr = {"eps", 0, eps};
  in[0] = x, in[1] = w_or_0, in[2] = bias_or_0, in[3] = 0;
  b->api->emit(b, ENG_OP_LAYER_NORM, in, 4, out, 2, &attr, 1, 0);
  return out[0];
}

/* *sum = x + residual; returns layer_norm(*sum). */
static inline eng_id eng_add_layer_norm(eng_build *b, eng_id x, eng_id residual, eng_id w_or_0, eng_id bias_or_0,
                                        double eps, eng_id *sum) {
  eng_id in[4], out[3] = {0, 0, 0};
  eng_attr attr = {"eps", 0, eps};
  in[0] = x, in[1] = w_or_0, in[2] = bias_or_0, in[3] = residual;
  b->api->emit(b, ENG_OP_LAYER_NORM, in, 4, out, 3, &attr, 1, 0);
  *sum = out[2];
  return out[0];
}

/* `positions_or_0`: 0 if each sample is one document. */
static inline eng_id eng_rope_at(eng_build *b, eng_id x, eng_id table, eng_id positions_or_0, int64_t heads) {
  eng_id in[3];
  eng_attr attrs[2] = {{"heads", 0, 0}, {"inverse", 0, 0}};
  attrs[0].i = heads;
  in[0] = x, in[1] = table, in[2] = positions_or_0;
  return eng_emit1(b, ENG_OP_ROPE, in, positions_or_0 ? 3 : 2, attrs, 2);
}

static inline eng_id eng_rope(eng_build *b, eng_id x, eng_id table, int64_t heads) {
  return eng_rope_at(b, x, table, 0, heads);
}

/* `segments_or_0`: 0 if each sample is one document. */
static inline eng_id eng_attention_in(eng_build *b, eng_id q, eng_id k, eng_id v, eng_id segments_or_0, int64_t heads,
                                      int64_t kv_heads, double scale) {
  eng_id in[4], out[2] = {0, 0};
  eng_attr attrs[3] = {{"heads", 0, 0}, {"kv_heads", 0, 0}, {"scale", 0, 0}};
  attrs[0].i = heads, attrs[1].i = kv_heads, attrs[2].f = scale;
  in[0] = q, in[1] = k, in[2] = v, in[3] = segments_or_0;
  b->api->emit(b, ENG_OP_ATTENTION, in, segments_or_0 ? 4 : 3, out, 2, attrs, 3, 0);
  return out[0];
}

static inline eng_id eng_attention(eng_build *b, eng_id q, eng_id k, eng_id v, int64_t heads, int64_t kv_heads,
                                   double scale) {
  return eng_attention_in(b, q, k, v, 0, heads, kv_heads, scale);
}

static inline eng_id eng_gated(eng_build *b, eng_id gate, eng_id up, int64_t act) {
  eng_id in[2];
  eng_attr attr = {"act", 0, 0};
  attr.i = act;
  in[0] = gate, in[1] = up;
  return eng_emit1(b, ENG_OP_GATED, in, 2, &attr, 1);
}

static inline eng_id eng_activation(eng_build *b, eng_id x, int64_t act) {
  eng_attr attr = {"act", 0, 0};
  attr.i = act;
  return eng_emit1(b, ENG_OP_ACTIVATION, &x, 1, &attr, 1);
}

static inline eng_id eng_scale(eng_build *b, eng_id x, double factor) {
  eng_attr attr = {"factor", 0, 0};
  attr.f = factor;
  return eng_emit1(b, ENG_OP_SCALE, &x, 1, &attr, 1);
}

/* `dtype`: ENG_F32, ENG_BF16, ... */
static inline eng_id eng_cast(eng_build *b, eng_id x, int64_t dtype) {
  eng_attr attr = {"dtype", 0, 0};
  attr.i = dtype;
  return eng_emit1(b, ENG_OP_CAST, &x, 1, &attr, 1);
}

/* `positions_or_0`: 0 if each sample is one document. */
static inline eng_id eng_positions_at(eng_build *b, eng_id x, eng_id table, eng_id positions_or_0, int64_t offset) {
  eng_id in[4];
  eng_attr attr = {"offset", 0, 0};
  attr.i = offset;
  in[0] = x, in[1] = table, in[2] = 0, in[3] = positions_or_0;
  return eng_emit1(b, ENG_OP_POSITIONS, in, positions_or_0 ? 4 : 2, &attr, 1);
}

static inline eng_id eng_positions(eng_build *b, eng_id x, eng_id table, int64_t offset) {
  return eng_positions_at(b, x, table, 0, offset);
}

/* p = 0 emits nothing. */
static inline eng_id eng_dropout(eng_build *b, eng_id x, double p) {
  eng_attr attr = {"p", 0, 0};
  attr.f = p;
  return p == 0 ? x : eng_emit1(b, ENG_OP_DROPOUT, &x, 1, &attr, 1);
}

static inline eng_id eng_add(eng_build *b, eng_id x, eng_id y) {
  eng_id in[2];
  in[0] = x, in[1] = y;
  return eng_emit1(b, ENG_OP_ADD, in, 2, 0, 0);
}

static inline eng_id eng_cross_entropy(eng_build *b, eng_id x, eng_id w, eng_id labels) {
  eng_id in[3];
  in[0] = x, in[1] = w, in[2] = labels;
  return eng_emit1(b, ENG_OP_CROSS_ENTROPY, in, 3, 0, 0);
}

/* The loss of a language model: cross-entropy, and with z_loss > 0 that multiple of the sum of lse^2. Two terms then,
 * "cross_entropy" and "z_loss"; without, the loss is no named term. loss_weights_or_0: (B, T) f32. Returns the
 * cross-entropy, which is the output of the last block. */
static inline eng_id eng_language_loss(eng_build *b, eng_id x, eng_id w, eng_id labels, eng_id loss_weights_or_0,
                                       double z_loss) {
  eng_id in[4], out[2] = {0, 0};
  eng_attr attr = {"z_loss", 0, 0};
  attr.f = z_loss;
  in[0] = x, in[1] = w, in[2] = labels, in[3] = loss_weights_or_0;
  b->api->emit(b, ENG_OP_CROSS_ENTROPY, in, loss_weights_or_0 ? 4 : 3, out, z_loss != 0 ? 2 : 1, &attr,
               z_loss != 0 ? 1 : 0, 0);
  if (z_loss != 0) {
    b->api->term(b, out[0], "cross_entropy", 1.0, 0);
    b->api->term(b, out[1], "z_loss", z_loss, 0);
  }
  return out[0];
}

#ifdef __cplusplus
}
#endif
#endif
