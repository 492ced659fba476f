// SPDX-License-Identifier: Apache-2.0
// NorMuon: the parts that it has beside those of muon.
#pragma once

#include "muon.hpp"

namespace muon {

// Scales the rows of o, each by the size that it had in the updates so far (NorMuon, Li et al. 2025, arXiv:2510.05491):
//   s_i = the sum of squares of row i: of each 4,096 elements in 64 lanes as in normalize, these sums added in f64
//   v_i = beta2 v_i + (1 - beta2) (s_i / N); d_i = 1 / (sqrt(v_i) + eps)
//   o_i = (d_i norm / sqrt(sum of d_i^2 s_i)) o_i, so that the norm of o is `norm`; 0 where that sum is 0
// s_i / N is computed in f64 and rounded once, and so is the factor of a row, from d_i; the sum over rows is made as
// eng.finish/1 adds partials. v and d are computed in f, each operation rounded by itself. Nothing changes when
// scalars[OK] is 0.  in: o (M, N), v (M) f, scalars; out: o, v, in place. attrs: beta2, eps, norm f. EXACT.
#define MUON_OP_NEURONS "eng.muon.neurons/1"

extern const eng_optimizer normuon;

}  // namespace muon
