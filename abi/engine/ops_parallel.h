/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/ops_parallel.h - ops of a model whose tensors ranks divide ([parallel]). Notation and rules are those of
 * engine/ops.h. Only the engine emits them, so neither models nor kernels need this header.
 */
#ifndef ENGINE_OPS_PARALLEL_H_
#define ENGINE_OPS_PARALLEL_H_

#include "ops.h"

/* y = the sum of x over the members of a group, in the order of eng.fold/1. Every member gets the same bits. The gradient
 * of x is that of y, which all members have alike. It is made of eng.all_to_all/1, eng.fold/1 and eng.all_gather/1.
 * in: x f, of a multiple of `members` elements; out: y as x. attrs: group i, members i, as of the collectives. */
#define ENG_OP_GROUP_SUM "eng.group_sum/1"

/* The members hold parts of the positions of the same sequences: number c of N the positions c T/N .. (c + 1) T/N - 1.
 * The next two move values between them. They are made of eng.all_to_all/1 and copies, and are EXACT.
 * attrs: group i, members i = N. */
/* y = all positions of this member's channels, c C/N .. (c + 1) C/N - 1. Its gradient is to_positions.
 * in: x (B, T/N, C), any type; out: y (B, T, C/N). */
#define ENG_OP_TO_CHANNELS "eng.to_channels/1"
/* y = this member's positions of all channels. Its gradient is to_channels.
 * in: x (B, T, C/N), any type; out: y (B, T/N, C). */
#define ENG_OP_TO_POSITIONS "eng.to_positions/1"

/* The next three are for members that also have tensors of the same model divided: between its maps each has T/N of the
 * positions. They are made of eng.all_to_all/1, eng.fold/1, eng.all_gather/1 and copies.
 * attrs: group i, members i = N, index i = c, this member's number. */
/* y = this member's positions of the sum of x over the members, in the order of eng.fold/1. The gradient of x is all of
 * that of y. in: x f (B, T, ...); out: y (B, T/N, ...). */
#define ENG_OP_SUM_TO_POSITIONS "eng.sum_to_positions/1"
/* y = all positions. With sum, what reads y gives each member a summand of its gradient, and the gradient of x is this
 * member's positions of their sum; without, all members have the gradient alike.
 * in: x (B, T/N, ...); out: y (B, T, ...). attr: [sum i]. EXACT. */
#define ENG_OP_GATHER_POSITIONS "eng.gather_positions/1"
/* y = this member's positions of x, which all members have alike. The gradient of x is all of that of y.
 * in: x (B, T, ...); out: y (B, T/N, ...). EXACT. */
#define ENG_OP_OWN_POSITIONS "eng.own_positions/1"

/* The next two are for members that each have some channels of a value. Both are made of a collective and copies.
 * attrs: group i, members i = N. */
/* y = the channels of all members, in their order. What reads y gives each member a summand of its gradient: that of x
 * is sum_to_channels. in: x (B, T, C), any type; out: y (B, T, N C). EXACT. */
#define ENG_OP_GATHER_CHANNELS "eng.gather_channels/1"
/* y = this member's channels of the sum of x over the members, in the order of eng.fold/1. Its gradient is
 * gather_channels. in: x f (B, T, N C); out: y (B, T, C). */
#define ENG_OP_SUM_TO_CHANNELS "eng.sum_to_channels/1"

/* ---- a vocabulary whose rows ranks divide: member r has rows first = r * R to first + R - 1 ---------------- */

/* eng.embedding/1 of a table of which each member has R rows: the group sum of eng.embedding_part/1, exact.
 * in: tokens (B, T) i32, table (R, H); out: y (B, T, H). attrs: group i, members i, first i. */
#define ENG_OP_GROUP_EMBEDDING "eng.group_embedding/1"
/* y[i] = table[tokens[i] - first], 0 for a token of other rows.
 * in: tokens (B, T) i32, table (R, H); out: y (B, T, H). attr: first i. EXACT. */
#define ENG_OP_EMBEDDING_PART "eng.embedding_part/1"
/* dtable = sum of the dy rows of its tokens, in row order.
 * in: tokens, dy (B, T, H), [acc (R, H)]; out: dtable (R, H), in place of acc. attrs: rows i = R, first i. */
#define ENG_OP_EMBEDDING_PART_GRAD "eng.embedding_part_grad/1"
/* eng.cross_entropy/1 of a weight of which each member has R rows; with softcap eng.capped_cross_entropy/1
 * (engine/ops_softcap.h). Every member gets the same bits. It is made of the three ops below, eng.all_gather/1 and
 * eng.group_sum/1 of dx; its gradient computes the loss too.
 * in: x (B, T, H), w (R, H), labels (B, T) i32, [loss_weights (B, T) f32]; out: loss (1) f32, with z_loss z (1) f32.
 * attrs: group i, members i, first i, whole i = R * members, z_loss f (0: no such output), softcap f (0: none). */
#define ENG_OP_GROUP_CROSS_ENTROPY "eng.group_cross_entropy/1"
/* For each token lse = log sum over its rows v of exp(logit v), then for each the logit of its label, 0 if that is none
 * of its rows; both 0 for the label -100. Logits exist in chunks of tokens, as in eng.cross_entropy/1.
 * in: x (B, T, H), w (R, H), labels (B, T) i32; out: scores (2 B T) f32. attrs: first i, whole i, softcap f. */
#define ENG_OP_VOCABULARY_SCORES "eng.vocabulary_scores/1"
/* The loss from the scores of all members: lse = log sum over members of exp(lse), the label's logit is the sum of
 * theirs, both in the order of the members; loss and z as of eng.cross_entropy/1, in the order of the tokens.
 * in: scores (members 2 B T) f32, labels (B, T) i32, [loss_weights (B, T) f32]; out: loss (1) f32, lse (B, T) f32, with
 * z_loss z (1) f32. attrs: members i, z_loss f. */
#define ENG_OP_VOCABULARY_LOSS "eng.vocabulary_loss/1"
/* dlogits v = loss_weight * inv_tokens * loss_scale * (weight * (softmax v - onehot) + z_loss * 2 lse softmax v) with
 * softmax v = exp(logit v - lse), times the derivative of a capped logit; dx = dlogits w is the share of these rows, dw = dlogits^T x [+ dw_acc].
 * in: x, w, labels, lse (B, T) f32, scalars, [dw_acc (R, H)], [loss_weights]; out: dx (B, T, H), dw (R, H), in place of
 * dw_acc. attrs: no_dw i, weight f (absent: 1), z_loss f (absent: 0), first i, whole i, softcap f. */
#define ENG_OP_VOCABULARY_GRAD "eng.vocabulary_grad/1"

#endif
