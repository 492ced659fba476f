// SPDX-License-Identifier: Apache-2.0
// The ops of the loss of pairs of answers.
#pragma once

#include "engine/kernel.h"
#include "engine/op.h"

// in: logprobs (B, T) f32, those of the labels; labels (B, T) i32; [reference (B, T) f32, as logprobs]; [weights (B, T)
// f32: a pair has the sum of those at the labels of its first sequence, 1 without this input]. Sequences 2k and 2k + 1
// are a pair, the preferred answer first; labels of the question are -100. A pair of which an answer has no label adds
// nothing. out: loss (1), a sum over pairs, each times its weight (pairs.hpp); nll (1), the sum of -mean(logprobs) of
// preferred answers, each times its weight; sums without weights of their rewards (1), of the rewards of the others
// (1), of the differences (1); the number of pairs whose preferred answer has the higher reward (1). All f32. attrs:
// kind i, beta f, margin f, smoothing f, mean i (pairs.hpp). Sums are made in f64, in the order of the pairs.
#define PREFERENCE_OP_PAIRS "eng.preference.pairs/1"
// in: logprobs, labels, [reference]; then the gradients of the first five outputs, (1) each, or absent; [weights]. The
// number of pairs has no gradient. out: dlogprobs. attrs: those of the op
#define PREFERENCE_OP_PAIRS_GRAD "eng.preference.pairs_grad/1"
// in: logprobs (B, T) f32, those of the labels; labels (B, T) i32; reference (B, T) f32, as logprobs; desirable (B, T)
// f32, whose first value of a sequence says whether its answer is good (not 0) or bad; [weights, as above]. Sequence 2k
// is an answer, 2k + 1 the same question with another answer, which only counts in the constant k of pairs.hpp. Of
// these two, both have a label, or they add nothing. out: loss (1), a sum over answers, each times its weight; k times
// their number (1); the number of good ones above k and bad ones below (1). All f32. attrs: beta f, good f, bad f: the
// weights of answers. Sums are made in f64, in the order of answers.
#define PREFERENCE_OP_KTO "eng.preference.kto/1"
// in: logprobs, labels, reference, desirable; then the gradient of the loss (1); [weights]. out: dlogprobs, 0 for
// sequences 2k + 1
#define PREFERENCE_OP_KTO_GRAD "eng.preference.kto_grad/1"

namespace preference {

extern const eng_ops ops;
extern const eng_kernels kernels;

}  // namespace preference
