// SPDX-License-Identifier: Apache-2.0
// The iteration that makes a matrix orthogonal: its coefficients, and the ops that it is made of.
#pragma once

#include "engine/optimizer.h"

namespace muon {

enum class Coefficients { jordan, polar_express };

struct Orthogonal {
  Coefficients coefficients;
  bool f32;  // products of f32; else bf16 products, summed in f32 and rounded once
  int64_t steps;
};

// Replaces `grad` (M, N) by factor * o: o has its singular vectors, and singular values near 1.
eng_status orthogonalize(const Orthogonal& how, double factor, eng_build* build, eng_id grad, const eng_desc& shape,
                         eng_error* error);

}  // namespace muon
