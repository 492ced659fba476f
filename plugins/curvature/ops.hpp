// SPDX-License-Identifier: Apache-2.0
// The ops of the curvature job. All are EXACT: every line of a formula is one operation, rounded once, in the order
// that is written here.
//
// Random numbers depend on the element of the parameter and on nothing else: not on how elements are divided over
// ranks, runs or threads. Philox 4x32-10 (Salmon et al. 2011) has key = seed and counter = [b, b >> 32,
// counters[ENG_C_UPDATES], stream + purpose * 2^28], 32 bits each. `stream` is eng_parameter.number, below 2^28; e is
// the element of the parameter.
//   purpose 1, the sign of e: with j = e % 1024 / 32, bit e % 32 of word j / 8 of block b = e / 1024 * 8 + j % 8; a set
//     bit means -1
//   purpose 2, the word of e, which says whether e is in the sample: word e % 32 / 8 of block b = e / 32 * 8 + e % 8,
//     with 0 in the place of the counter: all probes have one sample
//   purpose 3, the normal of e: words u, w = 0, 1 of block b (as for purpose 2) if e % 32 < 16, else words 2, 3;
//     gauss.hpp makes two normals of them: e % 16 < 8 is the first, otherwise the second
//
// f is f32; the kernels of `reference` take f64 as well, for all tensors of elements alike. n is the number of
// elements. attrs of the first three: seed i, stream i, first i: the element of the parameter with which the tensors
// begin, a multiple of 4,096.
#pragma once

#include <stdint.h>

#include "engine/op.h"

namespace curvature {

// p = base + a * v. v is +-1 for elements in the sample, and p = base elsewhere. An element is in the sample if
// its word is below floor(rate * share * 2^32); with rate * share >= 1 all are.
// in: base (n), scalars: a = [LR], share = [LR + 1], counters; out: p (n). attr: rate f.
#define CURVATURE_OP_PERTURB "eng.curvature.perturb/1"
// p = base + (sigma * scale[i / 4096]) * z for elements whose class is `wanted`, z standard normal; p = base elsewhere,
// and where that factor is 0.
// in: base (n), classes (n) u8, scale (n / 4096, rounded up) f, scalars: sigma = [LR], wanted = [LR + 1], counters;
// out: p (n).
#define CURVATURE_OP_NOISE "eng.curvature.noise/1"
// For elements in the sample, with v as in perturb: x = ((plus - grad) * factor) with the sign of v;
// d = x - mean; mean = mean + d * weight; m2 = m2 + d * (x - mean). (Welford 1962.) `weight` is 1 / the number of
// values. in: plus (n), grad (n), mean (n), m2 (n), scalars: factor = [LR], share = [LR + 1], weight = [LR + 2],
// counters; out: mean, m2, in place. attr: rate f.
#define CURVATURE_OP_HUTCHINSON "eng.curvature.hutchinson/1"
// Like hutchinson with x = (grad * grad) * factor, for all elements.
// in: grad (n), mean (n), m2 (n), scalars; out: mean, m2, in place.
#define CURVATURE_OP_FISHER "eng.curvature.fisher/1"
// The bits of x.  in: x, any type; out: y, as x.
#define CURVATURE_OP_COPY "eng.curvature.copy/1"
// into[0, u] += the number of rows with x = 0; into[1, u] += those with |x| <= threshold. A NaN is in neither.
// in: x (..., U) f32, bf16 or f16 (reference: f64 too), into (2, U) i64; out: into, in place. attr: threshold f.
#define CURVATURE_OP_COUNT "eng.curvature.count/1"

inline constexpr int64_t noise_block = 4096;  // elements of a value of `scale`

extern const eng_ops ops;
extern const eng_kernels reference_kernels;
const eng_kernels* cpu_kernels();  // with the best instruction set of this processor
// The kernels of `cpu` for one instruction set ("portable", "avx2"); nullptr if this processor lacks it.
const eng_kernels* isa_kernels(const char* name);

}  // namespace curvature
