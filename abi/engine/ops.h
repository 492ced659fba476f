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
 * engine/emit.h has a function for each op that a model emits.
 */
#ifndef ENGINE_OPS_H_
#define ENGINE_OPS_H_

#include "build.h"

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
 * order than in a sample of its own. Without it, the whole sample is one document. The data are no parameters: neither
 * input has a gradient. A running sequence is always one document: for it there are no such inputs, and the engine
 * refuses to derive its programs from a model that uses them. */

/* ---- layers: a model emits these; the engine knows their gradients ------------------------------------- */

/* y = x w^T + bias.  in: x (..., K), w (N, K), [bias (N)]; out: y (..., N). */
#define ENG_OP_LINEAR "eng.linear/1"
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
 * a whole. The kernel chooses the chunk from the shapes.
 * With loss weights, what a token adds to an output is multiplied by its weight. They do not change how many labels
 * count, by whose number the loss is divided.
 * With z_loss there is a second output: z = sum over labels != -100 of lse^2, lse = log sum over v of exp(logit v).
 * The model makes it a term (engine/build.h) of just this weight.
 * Outputs are the loss, or terms of it; no op may read them.
 * in: x (B, T, H), w (V, H), labels (B, T) i32, [loss_weights (B, T) f32]; out: loss (1) f32, with z_loss z (1) f32.
 * attr: z_loss f (0: no such output). Chowdhery et al. 2022, section 5 (z loss). */
#define ENG_OP_CROSS_ENTROPY "eng.cross_entropy/1"

#define ENG_ACT_SILU 1
#define ENG_ACT_GELU 2      /* exact, erf */
#define ENG_ACT_GELU_TANH 3 /* tanh form */
#define ENG_ACT_RELU 4

/* ---- products and sums for optimizers, moves and gradient rules ---------------------------------------- */

/* These two have no gradient of their own and no rule for a running sequence. A model can use them only where no
 * gradient is needed, and it then cannot generate. eng.linear/1 is the product for models. */

/* c = op(a) op(b) [+ acc].  in: a, b, [acc (M, N)]; out: c (M, N), in place of acc if given. Leading dimensions are
 * folded into rows; without ta, c has the leading dimensions of a. attrs: ta i, tb i (1: that matrix is transposed).
 * After op, a is (M, K) and b is (K, N). */
#define ENG_OP_MATMUL "eng.matmul/1"
/* Column sums.  in: x (..., N), [acc (N)]; out: y (N), in place of acc if given. */
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
 * or 0: no output z). */
#define ENG_OP_CROSS_ENTROPY_GRAD "eng.cross_entropy_grad/1"

/* ---- the step's own ops: EXACT ------------------------------------------------------------------------- */

/* scalars: f32[32] on the device. */
#define ENG_S_INV_TOKENS 0 /* 1 / labels counted in the global batch */
#define ENG_S_LOSS_SCALE 1
#define ENG_S_CLIP 2     /* factor by which an update multiplies gradients */
#define ENG_S_NORM 3     /* global gradient norm before clipping */
#define ENG_S_OK 4       /* 1: the update counts, 0: it changes nothing */
#define ENG_S_MAY_SKIP 5 /* 1: if the gradients are not finite, the run goes on with the next step; 0: it ends */
#define ENG_S_LR 8       /* learning rate, then the numbers of eng_optimizer.scalars */
#define ENG_S_COUNT 32
/* counters: i64[8] on the device. */
#define ENG_C_STEP 0     /* steps begun */
#define ENG_C_UPDATES 1  /* updates done */
#define ENG_C_MICRO 2    /* number of the micro-batch in the step, from 0 */
#define ENG_C_POSITION 3 /* of a running sequence: first position of this step */
#define ENG_C_RANK 4     /* number of this rank among those that share the batch; 0 with one rank */
#define ENG_C_WORLD 5    /* number of ranks that share the batch; 0 with one rank */
#define ENG_C_COUNT 8

/* The gradient of a term of the loss (engine/build.h): out = scalars[INV_TOKENS] * scalars[LOSS_SCALE] * weight, each
 * product rounded to the type of out, weight as well.  in: scalars; out: (1). attrs: weight f, dtype i (ENG_F32, or
 * ENG_F64 where the scalars are f64 or compute is). EXACT. */
#define ENG_OP_LOSS_SEED "eng.loss_seed/1"
/* Starts a step: micro = 0, step += 1, scalars[INV_TOKENS] = inputs[0], LOSS_SCALE = 1, MAY_SKIP = 0.
 * in: inputs (8) f32, counters; out: scalars, counters. */
#define ENG_OP_BEGIN "eng.begin/1"
/* out = rows[counters[MICRO]].  in: rows (A, ...), counters; out: row (...), any dtype. */
#define ENG_OP_GET_ROW "eng.get_row/1"
/* rows[counters[MICRO]] = row, then counters[MICRO] += 1.  in: row (n), rows (A, n) or, for n = 1, (A), counters;
 * out: rows, counters. */
#define ENG_OP_PUT_ROW "eng.put_row/1"
/* out = x, byte by byte. Only the engine emits it. On a device with memory of its own, either may lie in pinned memory
 * of the host: in this way a batch comes to the device and a loss comes back (engine/device.h).  in: x, any dtype; out:
 * the same. */
#define ENG_OP_COPY "eng.copy/1"
/* Sum of squares of each 4,096 elements: 64 strided f32 lanes (lane j takes elements j, j+64, ... in order, with fma),
 * then the lanes are folded in a balanced tree (j + j+32, then +16, ...).  in: x (n x 4096) f; out: (n) f32.
 * EXACT. */
#define ENG_OP_SUM_SQUARES "eng.sum_squares/1"
/* norm = sqrt(sum of partials in order, in f64) / scalars[LOSS_SCALE]; ok = norm is finite;
 * clip = (max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1) / scalars[LOSS_SCALE];
 * scalars[LR..] = table[counters[UPDATES]]; if ok, counters[UPDATES] += 1.
 * in: partials (n) f32, table (steps, columns) f32, scalars, counters; out: scalars, counters.
 * attr: max_norm f. EXACT. */
#define ENG_OP_FINISH "eng.finish/1"
/* A loss scale that follows the gradients: the state machine of DeepSpeed's dynamic loss scale, but gradients are always
 * divided by the scale that the backward used.
 * The state is f32[8]: the scale, or 0 before the first step; good updates since the last overflow, or since one before
 * the last growth; overflows until the scale is halved; skipped updates; the rest is 0.
 * Attributes of both ops: initial f > 0, minimum f > 0, hysteresis i > 0, window i (0: the scale never grows),
 * consecutive i. */
#define ENG_SCALER_COUNT 8
/* scalars[LOSS_SCALE] = the scale, at first `initial`; scalars[MAY_SKIP] = an overflow would not meet a scale at its
 * minimum that is to be halved.  in: state, scalars; out: scalars, in place. EXACT. */
#define ENG_OP_LOSS_SCALE "eng.loss_scale/1"
/* After an update that counts (scalars[OK]): good += 1; if good = window + 1, the scale is doubled, unless it is above
 * 2^126, good = 1 and the overflows to go are `hysteresis` again; with `consecutive` they are so after every good
 * update. After an overflow: good = 0, skipped += 1; if one overflow was to go, the scale is halved, to `minimum` at
 * least; else one less is to go.  in: state, scalars; out: state, in place. EXACT. */
#define ENG_OP_SCALER "eng.scaler/1"
/* Rounding at random, of what an update stores in bf16: the upper 16 bits of (the bits of the f32 value) + r, with r in
 * 0 .. 2^16 - 1. So a value that bf16 has stays itself, others become one of their two neighbours and are right on
 * average, and what is infinite or NaN stays so (NaN: the upper 16 bits, with bit 6 set).
 * Of element e of a parameter, r for value k = 0, 1, 2 is the lower half of word k of Philox 4x32-10 (Salmon et al.
 * 2011) if e / 16 is even, otherwise the upper half, for key = seed and counter = [b, b >> 32, counters[ENG_C_UPDATES],
 * 2^31 + stream], 32 bits each, with b = e / 32 * 16 + e % 16. So it does not depend on how parameters are divided.
 * attrs of such an update: seed i (eng_update.seed), stream i (eng_parameter.number), first i (the element of the
 * parameter with which p begins; a multiple of 32). */
/* Loshchilov and Hutter 2019. Per element, each operation rounded to f32 once, in this order:
 *   g = grad * scalars[CLIP]
 *   m = fma(1 - beta1, g - m, m);  v = fma(beta2, v, (1 - beta2) * (g * g))
 *   p = p - lr * (wd * p)          (skipped if wd = 0)
 *   p = p - (lr * m / c1) / (sqrt(v) / c2 + eps)
 * with c1 = scalars[LR+1] = 1 - beta1^k and c2 = scalars[LR+2] = sqrt(1 - beta2^k).
 * Nothing changes if scalars[OK] is 0.  in: p, grad, m, v (n) f32, scalars; out: p, m, v, in place; [weight (n)].
 * attrs: beta1 f, beta2 f, eps f, weight_decay f, [weight i: ENG_BF16 or ENG_F16. There is then an output weight of
 * that type: the new p, rounded as eng.cast/1 rounds. It is written also if scalars[OK] is 0]. EXACT.
 * p, m and v may all be bf16, and grad f32 or bf16: they are read as f32, and what is stored is rounded at random, value
 * 0 being p, 1 m, 2 v. There is then one more input, the counters, and no weight. */
#define ENG_OP_ADAMW "eng.adamw/1"
/* Per element:
 *   g = fma(wd, p, grad * scalars[CLIP]);  b = first update ? g : fma(momentum, b, g)
 *   p = p - lr * b                 (Nesterov: p - lr * (g + momentum * b))
 * scalars[LR+1] is 1 on the first update, otherwise 0. Nothing changes if scalars[OK] is 0.
 * in: p, grad, [b], scalars; out: p, [b], in place; [weight (n)].
 * attrs: momentum f, weight_decay f, nesterov i, [weight i, as in eng.adamw/1]. EXACT.
 * p and b may be bf16 as in eng.adamw/1; value 0 is p, 1 b. */
#define ENG_OP_SGD "eng.sgd/1"

/* ---- between ranks: engine/comm.h ------------------------------------------------------------------------------ */

/* Every collective has the attribute group i (eng_build_api.group; 1: all ranks). The engine adds members i = n, the
 * number of members of the group. All members run it, with equal shapes. Member k is the k-th rank in the group's list.
 * Collectives move flat values of any dtype. */

/* out = the inputs of all members, in their order.  in: (count); out: (n * count). `in` may be its own place in
 * `out`. */
#define ENG_OP_ALL_GATHER "eng.all_gather/1"
/* Part j of out = part k of member j's input, on member k.  in: (n * count); out: (n * count), not in place. */
#define ENG_OP_ALL_TO_ALL "eng.all_to_all/1"
/* out = the input of member `root`.  in: (count); out: (count), in place allowed. attr: root i. */
#define ENG_OP_BROADCAST "eng.broadcast/1"
/* The library's own sums, in an order that only the library knows: two equal runs may differ in their last bits.
 * in: (n * count); out: (count): on member k, the sum of part k of all inputs. */
#define ENG_OP_REDUCE_SCATTER "eng.reduce_scatter/1"
/* in: (count); out: (count), in place allowed: the sum of all inputs. */
#define ENG_OP_ALL_REDUCE "eng.all_reduce/1"
/* The sum of m rows in a balanced tree. Neighbours are added, and a last row without a neighbour stays as it is; this
 * repeats until one row remains: ((0+1)+(2+3))+4. So a tree over groups of 2, 4, 8 ... neighbours, and then over the
 * groups, gives the same bits. Each sum is rounded to the type of the output. It is computed by a kernel of the device,
 * not of the communicator.
 * in: x (m * n) f, row by row; out: (n) f, or f32. attrs: rows i = m, dtype i (that of the output; absent: f). EXACT. */
#define ENG_OP_FOLD "eng.fold/1"

/* ---- a running sequence: a layer at the next positions p .. p + n - 1, p = counters[ENG_C_POSITION] ------ */

/* in: x (B, n, heads*D), table (T, D) f32, counters; out: y as x, in place allowed. Row p + i turns position i;
 * p + n <= T. attrs as rope. */
#define ENG_OP_ROPE_STEP "eng.rope_step/1"
/* Writes k and v into rows p .. p + n - 1 of the caches. Query i then attends to rows 0 .. p + i. p + n <= S.
 * in: q (B, n, heads*D), k, v (B, n, kv_heads*D), k_cache, v_cache (B, S, kv_heads*D), counters;
 * out: o as q, k_cache, v_cache, the caches in place. attrs as attention. */
#define ENG_OP_ATTENTION_STEP "eng.attention_step/1"

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

#ifdef __cplusplus
}
#endif

#include "emit.h"
#endif
