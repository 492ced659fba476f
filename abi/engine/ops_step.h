/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops_step.h - the standard ops that models do not emit: those of a step, between ranks, and of a running
 * sequence. Part of engine/ops.h, which explains the notation and includes it.
 */
#ifndef ENGINE_OPS_STEP_H_
#define ENGINE_OPS_STEP_H_

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
 * product rounded to the type of out, weight as well. With labels = 0 it is scalars[LOSS_SCALE] * weight: of a term that
 * is not divided by labels.  in: scalars; out: (1). attrs: weight f, dtype i (ENG_F32, or ENG_F64 where the scalars are
 * f64 or compute is), labels i (absent: 1). EXACT. */
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
/* norm = sqrt(sum of partials) / scalars[LOSS_SCALE], in f64: lane j of 1,024 adds partials j, j+1024, ... in order, then
 * the lanes are folded in a balanced tree (j + j+512, then +256, ...); ok = norm is finite;
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
/* After an update that counts (scalars[OK]): good += 1; if good = window + 1: double the scale, unless it is above 2^126,
 * set good to 1, and reset the hysteresis counter to `hysteresis` (with `consecutive`, after every good update). After an
 * overflow: good = 0, skipped += 1; if the hysteresis counter is 1, halve the scale, to `minimum` at least; else lower
 * the counter by 1.  in: state, scalars; out: state, in place. EXACT. */
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
 * scalars[LR+1] is 1 on the first update, otherwise 0; without b it has no effect. Nothing changes if scalars[OK] is 0.
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

#endif
