// SPDX-License-Identifier: Apache-2.0
// Activations, one struct each: value(g), and slope(g) with value.
#pragma once

#include "exp.hpp"

namespace cpu {
namespace {

struct value_slope {
  vec value, slope;
};

struct silu {
  SIMD_INLINE static vec value(vec g) { return g * logistic_at(g).value; }
  SIMD_INLINE static value_slope both(vec g) {
    g = max(splat(-3e38f), g);  // an infinity times 0 would be a NaN
    const logistic s = logistic_at(g);
    return {g * s.value, s.value * fma(g, s.rest, splat(1.0f))};
  }
};

struct gelu {
  SIMD_INLINE static vec value(vec g) { return g * normal_at(g).below; }
  SIMD_INLINE static value_slope both(vec g) {
    const normal p = normal_at(g);
    return {g * p.below, fma(g, p.density, p.below)};
  }
};

// 0.5 g (1 + tanh z) = g sigmoid(2 z), z = sqrt(2/pi) (g + 0.044715 g^3)
struct gelu_tanh {
  static constexpr float twice = 1.59576912f, cubic = 0.044715f;
  SIMD_INLINE static vec z2(vec g) { return splat(twice) * g * fma(splat(cubic) * g, g, splat(1.0f)); }
  SIMD_INLINE static vec value(vec g) {
    return g * logistic_at(z2(max(splat(-20.0f), min(splat(20.0f), g)))).value;  // 0 and 1 beyond
  }
  SIMD_INLINE static value_slope both(vec g) {
    const vec c = max(splat(-20.0f), min(splat(20.0f), g));
    const logistic s = logistic_at(z2(c));
    const vec dz = splat(twice) * fma(splat(3.0f * cubic) * c, c, splat(1.0f));
    return {g * s.value, s.value * fma(c * s.rest, dz, splat(1.0f))};
  }
};

struct relu {
  SIMD_INLINE static vec value(vec g) { return max(splat(0.0f), g); }
  SIMD_INLINE static value_slope both(vec g) { return {value(g), if_positive(g, splat(1.0f), splat(0.0f))}; }
};

}  // namespace
}  // namespace cpu
