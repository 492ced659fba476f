// SPDX-License-Identifier: Apache-2.0
// tanh within 3e-7 of the result, small arguments included: a quotient of polynomials, a fit that weighs relative
// errors on 0 .. 9. From 9 on the result is 1 in f32. A NaN stays NaN.
#pragma once

#include "vec.hpp"

namespace cpu {
namespace {

SIMD_INLINE inline vec tanh(vec x) {
  x = max(splat(-9.0f), min(splat(9.0f), x));
  const vec z = x * x;
  vec p = splat(1.3353204764e-8f);
  p = fma(p, z, splat(2.0608047635e-5f));
  p = fma(p, z, splat(3.4955269657e-3f));
  p = fma(p, z, splat(0.13380974531f));
  p = fma(p, z, splat(1.0f));
  vec q = splat(7.7759654005e-7f);
  q = fma(q, z, splat(3.2855331665e-4f));
  q = fma(q, z, splat(2.5876751170e-2f));
  q = fma(q, z, splat(0.46714290977f));
  q = fma(q, z, splat(1.0f));
  return x * p / q;
}

}  // namespace
}  // namespace cpu
