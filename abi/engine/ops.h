/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops.h - the standard vocabulary: what each op means, for those who emit it and those who compute it.
 *
 * Notation. x (B, T, H) is a shape. N is the product of the leading dimensions. "f" stands for the floating type of the
 * inputs; sums are accumulated at least in f32. Optional inputs are in [brackets]. After an attribute, i is an integer
 * and f a real number. EXACT: the same bits on every device and ISA, with any number of threads.
 * Where f has 16 bits, the result of a matmul and the gradients dw, dbias and dtable, with what they are added to, may
 * be f32 instead.
 * "In place" means that the output may share the memory of that input.
 * A builder helper returns the id of its result, or 0 after an error (see eng_build_api.status).
 */
#ifndef ENGINE_OPS_H_
#define ENGINE_OPS_H_

#include "build.h"
#include "ops_step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- several documents in one sample ------------------------------------------------------------------- */

/* A sample of T positions may hold several documents, one after the other. Two tensors say where they lie, both (B, T)
 * i32, the same for every layer:
 *   segments   constant inside a document, and different in neighbouring ones. The values mean nothing else.
 *              start(b, t) is the first s such that segments[b, s .. t] are equal: where the document of t begins.
 *   positions  the number of a token in its document, from 0. Without them it is its number in the sample.
 * Layers that look at other positions or at the number of a position take one of them as an optional input. With it,
 * each document gets what it would get alone, and no gradient crosses a border. Sums over positions may be in another
 * order than in a sample of its own. Without it, the whole sample is one document. Both inputs are data and have no
 * gradients. A running sequence is always one document: for it there are no such inputs, and the engine refuses to
 * derive its programs from a model that uses them. */

/* ---- layers: a model emits these; the engine knows their gradients ------------------------------------- */

/* y = x w^T + bias.  in: x (..., K), w (N, K), [bias (N)]; out: y (..., N). */
#define ENG_OP_LINEAR "eng.linear/1"
/* y = max(x w^T + bias, 0), and where y > 0. A row of the mask has a bit for each y[j]: bit j % 8, from the lowest, of
 * byte j / 8. It is 1 where y[j] > 0, before or after y is rounded to f; where the sum is exactly 0 it may be either, as
 * it may be with the gradient of ReLU there. The bits behind the last y are 0.
 * in: x (..., K), w (N, K), [bias (N)]; out: y (..., N), mask (..., eng_relu_mask_bytes(N)) u8. Where the sum is NaN, y
 * is NaN or 0. */
#define ENG_OP_LINEAR_RELU "eng.linear_relu/1"
/* y[i] = table[tokens[i]].  in: tokens (B, T) i32, table (V, H); out: y (B, T, H). */
#define ENG_OP_EMBEDDING "eng.embedding/1"
/* s = x + residual (or x); rstd = 1/sqrt(mean(s^2) + eps); y = s * rstd * w. Where w and y have 16 bits, x, residual and
 * s may be f32.
 * in: x (..., H), w (H), [residual (..., H)]; out: y (..., H), rstd (...) f32, and with a residual
 * s (..., H), in place of x or residual allowed. attr: eps f.  Zhang and Sennrich 2019. */
#define ENG_OP_RMS_NORM "eng.rms_norm/1"
/* s = x + residual (or x); y = (s - mean) * rstd * w + bias over the last dimension, rstd = 1/sqrt(variance + eps).
 * in: x (..., H), [w (H)], [bias (H), only with w], [residual (..., H)]; out: y (..., H), stats (..., 2) f32 =
 * [mean, rstd], and with a residual s (..., H), in place of x or residual allowed. attr: eps f.  Ba et al. 2016. */
#define ENG_OP_LAYER_NORM "eng.layer_norm/1"
/* Rotates halves: with d = D/2, y1 = x1*cos - x2*sin, y2 = x2*cos + x1*sin, x1 = x[..., :d], x2 = x[..., d:].
 * in: x (B, T, heads*D), table (P, D) f32 = [cos(d) | sin(d)] per position, P >= T, [positions (B, T) i32]; out: y as x,
 * in place allowed. Row t of the table turns token t, with positions row positions[b, t], which lies in 0 .. P - 1.
 * attrs: heads i, inverse i (1 rotates back).  Su et al. 2021, Hugging Face half-split order. */
#define ENG_OP_ROPE "eng.rope/1"
/* Causal attention: softmax(scale q k^T + mask) v. Query head h reads key head h / (heads/kv_heads). Position t attends
 * to 0 .. t, with segments to start(b, t) .. t.
 * in: q (B, T, heads*D), k (B, T, kv_heads*D), v (B, T, kv_heads*D), [segments (B, T) i32];
 * out: o (B, T, heads*D), lse (B, heads, T) f32. attrs: heads i, kv_heads i, scale f. */
#define ENG_OP_ATTENTION "eng.attention/1"
/* y = act(gate) * up.  in: gate (..., I), up (..., I); out: y. attr: act i (ENG_ACT_*). */
#define ENG_OP_GATED "eng.gated/1"
/* y = act(x), in place allowed. in: x; out: y. attr: act i (ENG_ACT_*). */
#define ENG_OP_ACTIVATION "eng.activation/1"
/* y = a + b, in place of either allowed. One of them may be f32 where the other has 16 bits; y is f32 then.
 * in: a, b; out: y. */
#define ENG_OP_ADD "eng.add/1"
/* y = factor * x, in place allowed. in: x; out: y. attr: factor f. EXACT. */
#define ENG_OP_SCALE "eng.scale/1"
/* y = x in another floating type, rounded to nearest even. NaN stays NaN; a value that is too large becomes infinite.
 * Converts between f32, bf16 and f16, and between f32 and f64. in: x; out: y. attr: dtype i (ENG_F32, ENG_BF16, ...),
 * that of y. Its gradient is cast back. EXACT. */
#define ENG_OP_CAST "eng.cast/1"
/* The next four move values and compute nothing: x has any type. They are EXACT. In a running sequence they may change
 * the second dimension, that of the positions, only of values without positions, such as parameters. */
/* y = the elements of x, in row-major order, with other dimensions, in place allowed. The first `keep` dimensions stay;
 * behind them come `ndim` others: dim0, dim1 ... One of these may be -1: it follows from the number of elements.
 * in: x; out: y. attrs: keep i, ndim i, dim0 i, dim1 i, ... */
#define ENG_OP_RESHAPE "eng.reshape/1"
/* y = x with two dimensions exchanged: y[.., i, .., j, ..] = x[.., j, .., i, ..].
 * in: x; out: y. attrs: a i, b i, the numbers of the two. */
#define ENG_OP_TRANSPOSE "eng.transpose/1"
/* x divided along dimension `axis` into 1 to 16 parts, whose lengths there are size0, size1 ...; without size0 they are
 * equal. in: x; out: the parts, in their order. attrs: axis i, parts i, [size0 i, size1 i, ...]. */
#define ENG_OP_SPLIT "eng.split/1"
/* The inputs joined along dimension `axis`; in all others they agree. An absent input k, of which the attribute sizek is
 * the length, counts as zeros; one must be there. in: 1 to 16 parts; out: y. attrs: axis i, [size0 i, size1 i, ...]. */
#define ENG_OP_CONCAT "eng.concat/1"
/* y[b, t] = x[b, t] + table[t + offset], in place allowed. In a running sequence, t counts from its position. With
 * positions: table[positions[b, t] + offset], a row that must exist.
 * in: x (B, T, H), table (P, H), P >= T + offset, [counters: t starts at counters[ENG_C_POSITION]], [positions (B, T)
 * i32, only without counters]; out: y (B, T, H). attr: offset i. EXACT. */
#define ENG_OP_POSITIONS "eng.positions/1"
/* y = kept ? x * (1 / (1 - p)) : 0. An element is dropped with probability p; in place allowed. A model gives x
 * (B, ...) and p. The engine adds the other input and the other attributes, and omits the op from every program except
 * training. The gradient is the same op on dy, so nothing is saved.
 * Element j of a sequence b is dropped if its 32-bit word of Philox 4x32-10 (Salmon et al. 2011) is below p * 2^32.
 * That is word j % 64 / 16 for key = seed and counter = [j / 64 * 16 + j % 16, B * (counters[ENG_C_MICRO] *
 * max(counters[ENG_C_WORLD], 1) + counters[ENG_C_RANK]) + b, counters[ENG_C_STEP], stream], 32 bits each. So it depends
 * on the number of the sequence in the batch, not on how the batch is divided.
 * in: x, counters; out: y. attrs: p f in [0, 1), seed i, stream i > 0 (one per use in the model). EXACT.  Srivastava et
 * al. 2014. */
#define ENG_OP_DROPOUT "eng.dropout/1"
/* loss = sum over labels != -100 of -log softmax(x w^T)[label], in chunks of tokens, so that the logits never exist as
 * a whole. The kernel chooses the chunk from the shapes. With loss weights, what a token adds to an output is
 * multiplied by its weight. They do not change how many labels count, by whose number the loss is divided. With z_loss
 * there is a second output: z = sum over labels != -100 of lse^2, lse = log sum over v of exp(logit v). The model makes
 * it a term (engine/build.h) of just this weight. Outputs are the loss, or terms of it; no op may read them.
 * With vocabulary, ids and logits are below it, and the rows of w behind are zeros: a kernel may multiply them, too. In
 * dw they are those of dw_acc, or zeros. Only the engine adds it, for a device whose option pad_vocabulary is above 1.
 * in: x (B, T, H), w (V, H), labels (B, T) i32, [loss_weights (B, T) f32]; out: loss (1) f32, with z_loss z (1) f32.
 * attrs: z_loss f (0: no such output), vocabulary i (absent: V). Chowdhery et al. 2022, section 5 (z loss). */
#define ENG_OP_CROSS_ENTROPY "eng.cross_entropy/1"
/* Log-probabilities of labels: log softmax(x w^T)[label], 0 for the label -100; chunked like eng.cross_entropy/1, and so
 * is the gradient, which computes the logits again. Any op may read them. It has no rule for a running sequence.
 * in: x (B, T, H), w (V, H), labels (B, T) i32; out: logprobs (B, T) f32. attr: vocabulary i (absent: V). */
#define ENG_OP_LABEL_LOGPROB "eng.label_logprob/1"

#define ENG_ACT_SILU 1
#define ENG_ACT_GELU 2      /* exact, erf */
#define ENG_ACT_GELU_TANH 3 /* tanh form */
#define ENG_ACT_RELU 4

/* ---- products and sums for optimizers, moves and gradient rules ---------------------------------------- */

/* c = op(a) op(b) [+ acc].  in: a, b, [acc (M, N)]; out: c (M, N), in place of acc if given. Leading dimensions are
 * folded into rows; without ta, c has the leading dimensions of a. attrs: ta i, tb i (1: that matrix is transposed).
 * After op, a is (M, K) and b is (K, N). In a running sequence only a may have positions, and without ta. A model that
 * multiplies by a parameter (N, K) uses eng.linear/1. */
#define ENG_OP_MATMUL "eng.matmul/1"
/* Column sums. It has no gradient and no rule for a running sequence: a model can use it only where none is needed.
 * in: x (..., N), [acc (N)]; out: y (N), in place of acc if given. */
#define ENG_OP_SUM_ROWS "eng.sum_rows/1"

/* ---- gradients of the layers: only the engine emits these ---------------------------------------------- */

/* dtable = sum of dy rows by token, in row order.  in: tokens, dy (B, T, H), [acc (V, H)]; out: dtable (V, H), in
 * place of acc. attr: rows i = V. */
#define ENG_OP_EMBEDDING_GRAD "eng.embedding_grad/1"
/* in: dy, s, w, rstd, [ds (added to dx)], [dw_acc (H)]; out: dx, dw (H), in place of ds and dw_acc. dx and ds have the
 * type of s. */
#define ENG_OP_RMS_NORM_GRAD "eng.rms_norm_grad/1"
/* in: dy, s, [w], stats, [ds (added to dx)], [dw_acc (H)], [dbias_acc (H)]; out: dx, with w dw (H), with a bias dbias
 * (H), in place of ds, dw_acc, dbias_acc. attr: bias i (1: there is one). */
#define ENG_OP_LAYER_NORM_GRAD "eng.layer_norm_grad/1"
/* in: do, q, k, v, o, lse, [segments (B, T) i32]; out: dq, dk, dv. attrs as attention. */
#define ENG_OP_ATTENTION_GRAD "eng.attention_grad/1"
/* in: dy, gate, up; out: dgate, dup (in place of gate, up allowed). attr: act. */
#define ENG_OP_GATED_GRAD "eng.gated_grad/1"
/* in: dy, x (relu: x or y); out: dx, in place of either. attr: act. */
#define ENG_OP_ACTIVATION_GRAD "eng.activation_grad/1"
/* The gradient behind eng.linear_relu/1 from that of a matrix product that reads it: dz = dy w where the mask has a 1,
 * elsewhere 0 of any sign, or NaN if dy w is not finite. dbias = [acc +] the column sums of dz.
 * in: dy (..., N), w (N, K), mask (..., eng_relu_mask_bytes(K)) u8, [acc (K)]; out: dz (..., K), with sums dbias (K), in
 * place of acc if given. attr: sums i (1: there is dbias). */
#define ENG_OP_MATMUL_RELU_GRAD "eng.matmul_relu_grad/1"
/* dtable[t + offset] = sum of dy[b, t] over b in order; other rows are zero. With positions: dtable[p + offset] = sum of
 * the dy[b, t] with positions[b, t] = p, in the order of b, then t.
 * in: dy (B, T, H), [acc (P, H)], [positions (B, T) i32]; out: dtable (P, H), in place of acc. attrs: rows i = P, offset
 * i. */
#define ENG_OP_POSITIONS_GRAD "eng.positions_grad/1"
/* Forward and gradient in one pass. With s = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE] * weight,
 * z = scalars[ENG_S_INV_TOKENS] * scalars[ENG_S_LOSS_SCALE] * z_loss and the token's loss weight l (1 if there are none)
 *   dlogits = l * (s * (softmax - onehot(label)) + 2 * z * lse * softmax).
 * in: x, w, labels, scalars, [dw_acc], [loss_weights]; out: loss (1) (a sum without s), dx (B, T, H), dw (V, H), in
 * place of dw_acc, and last, with z_loss, z (1) (likewise).
 * attrs: no_dw i (1: nobody needs dw; there is no such output, and no dw_acc), weight f (absent: 1), z_loss f (absent
 * or 0: no output z), vocabulary i (absent: V). */
#define ENG_OP_CROSS_ENTROPY_GRAD "eng.cross_entropy_grad/1"
/* dlogits = dy * (onehot(label) - softmax), 0 for the label -100.
 * in: x, w, labels, dy (B, T) f32, [dw_acc]; out: dx (B, T, H), dw (V, H), in place of dw_acc.
 * attrs: no_dw i (1: there is no output dw, and no dw_acc), vocabulary i (absent: V). */
#define ENG_OP_LABEL_LOGPROB_GRAD "eng.label_logprob_grad/1"

/* ---- initialisation: element e of the parameter depends on (seed, stream, e) only ---------------------- */

/* A model gives value, mean, std, low and high (eng_param.init). The engine adds three attributes to every init op,
 * including those of plugins:
 *   seed i    [train] seed
 *   stream i  the number of the parameter, from 0, in the order of declaration
 *   first i   the element of the parameter with which `out` begins
 * A call fills one range of elements that this rank keeps. A parameter that it keeps in several ranges gets one call
 * for each. */

/* out (n) f: elements first .. first + n - 1 of the parameter, computed in f64 and rounded once to the type of out.
 * attrs: value f, first i. */
#define ENG_OP_INIT_CONSTANT "eng.init_constant/1"
/* attrs: mean f, std f, seed i, stream i, first i. Philox 4x32-10 (Salmon et al. 2011), Box-Muller in f64. */
#define ENG_OP_INIT_NORMAL "eng.init_normal/1"
/* attrs: low f, high f, seed i, stream i, first i. */
#define ENG_OP_INIT_UNIFORM "eng.init_uniform/1"

/* ---- helpers for models ------------------------------------------------------------------------------ */

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

/* Bytes of a row of the mask of eng.linear_relu/1 for n elements: the bits are filled up to a multiple of 128. */
static inline int64_t eng_relu_mask_bytes(int64_t n) {
  return (n + 127) / 128 * 16;
}

static inline eng_id eng_linear_relu(eng_build *b, eng_id x, eng_id w, eng_id bias_or_0) {
  eng_id in[3], out[2] = {0, 0};
  in[0] = x, in[1] = w, in[2] = bias_or_0;
  b->api->emit(b, ENG_OP_LINEAR_RELU, in, 3, out, 2, 0, 0, 0);
  return out[0];
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

#define ENG_MAX_PARTS 16

static inline const char *eng_numbered_key_(int is_size, uint32_t k) {
  static const char *const sizes[ENG_MAX_PARTS] = {"size0",  "size1",  "size2",  "size3", "size4",  "size5",
                                                   "size6",  "size7",  "size8",  "size9", "size10", "size11",
                                                   "size12", "size13", "size14", "size15"};
  static const char *const dims[ENG_MAX_DIMS] = {"dim0", "dim1", "dim2", "dim3", "dim4", "dim5"};
  return is_size ? sizes[k] : dims[k];
}

/* x with its first `keep` dimensions, and `ndim` others behind them; ndim is at most ENG_MAX_DIMS. */
static inline eng_id eng_reshape(eng_build *b, eng_id x, uint32_t keep, const int64_t *dims, uint32_t ndim) {
  eng_attr attrs[2 + ENG_MAX_DIMS];
  uint32_t k;
  attrs[0].key = "keep", attrs[0].i = keep, attrs[0].f = 0;
  attrs[1].key = "ndim", attrs[1].i = ndim, attrs[1].f = 0;
  for (k = 0; k < ndim && k < ENG_MAX_DIMS; ++k)
    attrs[2 + k].key = eng_numbered_key_(0, k), attrs[2 + k].i = dims[k], attrs[2 + k].f = 0;
  return eng_emit1(b, ENG_OP_RESHAPE, &x, 1, attrs, 2 + k);
}

static inline eng_id eng_transpose(eng_build *b, eng_id x, int64_t first, int64_t second) {
  eng_attr attrs[2] = {{"a", 0, 0}, {"b", 0, 0}};
  attrs[0].i = first, attrs[1].i = second;
  return eng_emit1(b, ENG_OP_TRANSPOSE, &x, 1, attrs, 2);
}

/* Writes the ids of the parts to out[0 .. parts - 1]; parts is at most ENG_MAX_PARTS. `sizes_or_0`: NULL: equal parts. */
static inline void eng_split(eng_build *b, eng_id x, int64_t axis, uint32_t parts, const int64_t *sizes_or_0,
                             eng_id *out) {
  eng_attr attrs[2 + ENG_MAX_PARTS];
  uint32_t k, n = 2;
  attrs[0].key = "axis", attrs[0].i = axis, attrs[0].f = 0;
  attrs[1].key = "parts", attrs[1].i = parts, attrs[1].f = 0;
  for (k = 0; k < parts; ++k) {
    out[k] = 0;
    if (!sizes_or_0 || k >= ENG_MAX_PARTS) continue;
    attrs[n].key = eng_numbered_key_(1, k), attrs[n].i = sizes_or_0[k], attrs[n].f = 0;
    ++n;
  }
  b->api->emit(b, ENG_OP_SPLIT, &x, 1, out, parts, attrs, n, 0);
}

static inline eng_id eng_concat(eng_build *b, const eng_id *in, uint32_t n_in, int64_t axis) {
  eng_attr attr = {"axis", 0, 0};
  attr.i = axis;
  return eng_emit1(b, ENG_OP_CONCAT, in, n_in, &attr, 1);
}

/* c = op(a) op(b); see eng.matmul/1. */
static inline eng_id eng_matmul(eng_build *b, eng_id x, eng_id y, int64_t ta, int64_t tb) {
  eng_id in[2];
  eng_attr attrs[2] = {{"ta", 0, 0}, {"tb", 0, 0}};
  attrs[0].i = ta, attrs[1].i = tb;
  in[0] = x, in[1] = y;
  return eng_emit1(b, ENG_OP_MATMUL, in, 2, attrs, 2);
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
 * cross-entropy, which is the output of the last block; 0, an error, if z_loss > 0 and the engine knows no terms. */
static inline eng_id eng_language_loss(eng_build *b, eng_id x, eng_id w, eng_id labels, eng_id loss_weights_or_0,
                                       double z_loss) {
  eng_id in[4], out[2] = {0, 0};
  eng_attr attr = {"z_loss", 0, 0};
  attr.f = z_loss;
  in[0] = x, in[1] = w, in[2] = labels, in[3] = loss_weights_or_0;
  if (z_loss != 0 && !ENG_HAS(b->api, term)) return 0;
  b->api->emit(b, ENG_OP_CROSS_ENTROPY, in, loss_weights_or_0 ? 4 : 3, out, z_loss != 0 ? 2 : 1, &attr,
               z_loss != 0 ? 1 : 0, 0);
  if (z_loss != 0) {
    b->api->term(b, out[0], "cross_entropy", 1.0, 0);
    b->api->term(b, out[1], "z_loss", z_loss, 0);
  }
  return out[0];
}

/* The loss that the run chooses, of hidden states (B, T, H) and the head's weight (V, H): eng_build_api.loss. Returns
 * the output of the last block. An engine that has no such function computes the cross-entropy. */
static inline eng_id eng_head_loss(eng_build *b, eng_id hidden, eng_id weight) {
  eng_id out = 0, labels = 0;
  if (ENG_HAS(b->api, loss)) {
    b->api->loss(b, hidden, weight, &out, 0);
    return out;
  }
  b->api->batch(b, "labels", &labels, 0);
  return eng_language_loss(b, hidden, weight, labels, eng_offered(b, "loss_weights"), 0.0);
}

#ifdef __cplusplus
}
#endif
#endif
