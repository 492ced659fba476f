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

#endif
