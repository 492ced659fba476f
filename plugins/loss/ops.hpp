// SPDX-License-Identifier: Apache-2.0
// The ops of the loss of pairs of answers.
#pragma once

#include "engine/kernel.h"
#include "engine/op.h"

// in: logprobs (B, T) f32, those of the labels; labels (B, T) i32; [reference (B, T) f32, as logprobs]. Sequences 2k
// and 2k + 1 are a pair, the preferred answer first; labels of the question are -100. A pair of which an answer has no
// label adds nothing. out: loss (1), a sum over pairs (pairs.hpp); nll (1), the sum of -mean(logprobs) of preferred
// answers; sums of their rewards (1), of the rewards of the others (1), of the differences (1); the number of pairs
// whose preferred answer has the higher reward (1). All f32. attrs: kind i, beta f, margin f, smoothing f, mean i
// (pairs.hpp). Sums are made in f64, in the order of the pairs.
#define PREFERENCE_OP_PAIRS "eng.preference.pairs/1"
// in: logprobs, labels, [reference]; then the gradients of the first five outputs, (1) each, or absent. The number of
// pairs has none. out: dlogprobs. attrs: those of the op
#define PREFERENCE_OP_PAIRS_GRAD "eng.preference.pairs_grad/1"

namespace preference {

extern const eng_ops ops;
extern const eng_kernels kernels;

}  // namespace preference
