// SPDX-License-Identifier: Apache-2.0
// e^x within 1.5 ulp on the whole range, denormal results included, and the normal distribution built on it.
// The polynomials are Chebyshev fits made for these intervals.
#pragma once

#include "vec.hpp"

namespace cpu {
namespace {

inline vec exp(vec x) {
  x = max(splat(-110.0f), min(splat(90.0f), x));  // outside of this range the result is 0 or infinity anyway
  const vec magic = splat(12582912.0f);           // 1.5 * 2^23: adding it rounds to a whole number
  const vec n = fma(x, splat(1.44269504f), magic) - magic;
  // r = x - n ln 2, |r| <= 0.3467; ln 2 in two parts, n times the first part is exact
  vec r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  vec q = splat(0.00139262135f);
  q = fma(q, r, splat(0.00836320297f));
  q = fma(q, r, splat(0.0416665544f));
  q = fma(q, r, splat(0.166665768f));
  q = fma(q, r, splat(0.5f));
  return scale2(fma(r * r, q, r) + splat(1.0f), n);
}

struct logistic {
  vec value, rest;  // 1 / (1 + e^-x) and 1 - value, each precise in its own tail
};

inline logistic logistic_at(vec x) {
  const vec e = exp(splat(0.0f) - abs(x)), large = splat(1.0f) / (splat(1.0f) + e), small = e * large;
  return {if_positive(x, large, small), if_positive(x, small, large)};
}

struct normal {
  vec density, below;  // of the standard normal distribution at x
};

// With a = |x|: P(X < -a) = e^(-a^2/2) M(a), M(a) (a + 4) a polynomial in (a - 4) / (a + 4), |error| < 1e-8 relative.
// The error of a^2/2 is carried into the exponential, so that far tails keep their relative precision.
inline normal normal_at(vec x) {
  const vec a = min(splat(20.0f), abs(x));  // below -20 the probability is 0 in f32
  const vec h = splat(0.5f) * a, square = h * a, lost = fms(h, a, square);
  const vec e = exp(splat(0.0f) - square);
  const vec bell = e - e * lost;
  const vec inverse = splat(1.0f) / (a + splat(4.0f)), t = (a - splat(4.0f)) * inverse;
  vec m = splat(-4.23102602e-5f);
  m = fma(m, t, splat(-0.000210143929f));
  m = fma(m, t, splat(0.000179514773f));
  m = fma(m, t, splat(0.00163218413f));
  m = fma(m, t, splat(-0.00349839143f));
  m = fma(m, t, splat(-0.00754314026f));
  m = fma(m, t, splat(0.0603997538f));
  m = fma(m, t, splat(-0.186521336f));
  m = fma(m, t, splat(0.387137203f));
  m = fma(m, t, splat(-0.607896662f));
  m = fma(m, t, splat(0.755285132f));
  const vec tail = bell * (m * inverse);
  return {bell * splat(0.398942280f), if_positive(x, splat(1.0f) - tail, tail)};
}

}  // namespace
}  // namespace cpu
