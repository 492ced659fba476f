// SPDX-License-Identifier: Apache-2.0
// Code that the kernels for the device `reference` share.
#pragma once

#include <cmath>

#include "../common/documents.hpp"
#include "../common/reals.hpp"
#include "../common/types.hpp"

namespace mamba {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::Reals;
using common::rows;

// All but input `integers`.
void expect_reals(const Call& c, size_t integers) {
  for (const auto* list : {&c.in, &c.out})
    for (const eng_desc& d : *list)
      if (d.dtype && !(integers < c.in.size() && &d == &c.in[integers]) && d.dtype != ENG_F32 && d.dtype != ENG_F64 &&
          !common::is_half(d))
        throw common::Error{ENG_UNSUPPORTED, "computes in f32, f64, bf16 or f16"};
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
inline double softplus(double x) {  // not every file has a use for it
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

}  // namespace
}  // namespace mamba
