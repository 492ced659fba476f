// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): the momentum of a matrix is replaced by the
// nearest matrix with orthogonal rows or columns, up to a factor for each singular value near 1, which a few products
// compute (Newton-Schulz). All other parameters are updated by AdamW.
#pragma once

#include "../../common/kernel.hpp"
#include "engine/op.h"
#include "engine/optimizer.h"

namespace muon {

// g = grad * scalars[CLIP]; m = momentum * m + g; grad = nesterov ? g + momentum * m : m.  Each operation is rounded by
// itself. Nothing changes when scalars[OK] is 0.  in: grad, m (n) f, scalars; out: grad, m, in place.
// attrs: momentum f, nesterov i. EXACT.
#define MUON_OP_MOMENTUM "eng.muon.momentum/1"
// x = u / (norm + eps), norm the root of the sum of all squares: of each 4,096 elements in 64 strided lanes (lane j
// takes elements j, j+64, ... in order), the lanes folded in a balanced tree, these sums added in f64 as eng.finish/1
// adds partials. The quotient 1 / (norm + eps) is computed in f64 and rounded once.  in: u (M, N) f; out: x (M, N),
// in place allowed. attr: eps f. EXACT.
#define MUON_OP_NORMALIZE "eng.muon.normalize/1"
// p = p - lr * (wd * p) (skipped when wd = 0); p = p - lr * o.  Nothing changes when scalars[OK] is 0.
// in: p, o (n) f, scalars; out: p, in place; [weight (n)]. attrs: weight_decay f, [weight i, as in eng.adamw/1]. EXACT.
#define MUON_OP_APPLY "eng.muon.apply/1"

extern const eng_optimizer optimizer;
extern const eng_ops ops;
extern const eng_kernels cpu_kernels, reference_kernels;

}  // namespace muon
