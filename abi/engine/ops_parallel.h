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

#endif
