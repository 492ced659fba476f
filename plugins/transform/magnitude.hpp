// SPDX-License-Identifier: Apache-2.0
// The ops of weight-decomposed adaptation (DoRA, Liu et al. 2024, arXiv 2402.09353): a row of W' has the direction of
// that row of W + s B A, and a trained length m.
#pragma once

#include "engine/kernel.h"
#include "engine/op.h"

// norm[i] = the length of row i of W + scale B A: the root of a sum in f64, in the order of the columns.
// in: w (R, C) f, a (k, C) f, b (R, k) f; out: norm (R) f32, or f64 where w is. attrs: scale f, 1 by default; squares i
// (1: the sum without the root, which ranks that divide the columns add up). It is a constant for the backward
// (section 4.3 of the paper).
#define DORA_OP_ROW_NORM "eng.low_rank.row_norm/1"
// y[t, i] = z[t, i] (m[i] / norm[i]) [+ bias[i]], in place of z allowed; a row of length 0 gives 0.
// in: z (..., R) f, m (R), norm (R), both f32, or f64 where z is, [bias (R) f]; out: y as z. attr: squares i (1: `norm`
// is the square of the length, and has no gradient).
#define DORA_OP_MAGNITUDE "eng.low_rank.magnitude/1"
// The gradient by m: dm[i] = sum over t of dy[t, i] z[t, i] / norm[i], a sum in f64 in the order of t.
// in: dy (..., R) f, z as dy, norm (R); out: dm (R), as norm. attr: squares i.
#define DORA_OP_MAGNITUDE_GRAD "eng.low_rank.magnitude_grad/1"

namespace dora {

extern const eng_ops ops;
extern const eng_kernels kernels;

}  // namespace dora
