// SPDX-License-Identifier: Apache-2.0
// causal_conv1d and its gradient for a register of channels; x3 .. x0 are the last four tokens, oldest first.
#pragma once

#include "../common/simd/exp.hpp"
#include "loops.hpp"

namespace mamba {
namespace {

using namespace cpu;

// body(e, lanes) for registers of channels first .. last - 1.
template <class Body>
SIMD_INLINE inline void for_channels(int64_t first, int64_t last, Body body) {
  for_lanes(last - first, [=](int64_t i, auto k) SIMD_INLINE { body(first + i, k); });
}

struct activation {
  vec value, slope;
};
inline activation silu_at(vec x) {
  const logistic s = logistic_at(x);
  return {x * s.value, s.value * fma(x, s.rest, splat(1.0f))};
}

inline vec convolve(const vec* w, vec bias, vec x3, vec x2, vec x1, vec x0) {
  return fma(w[3], x0, fma(w[2], x1, fma(w[1], x2, fma(w[0], x3, bias))));
}

void conv(const Sizes& s, const float* x, const float* taps, const float* bias, float* y, float* before, int64_t first,
          int64_t last) {
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    vec w[most_taps], past[most_taps];  // past[j]: the token j before this one
    const vec b = bias ? load(bias + e, k) : splat(0);
    for (int64_t j = 0; j < most_taps; ++j) {
      w[j] = load(taps + j * s.E + e, k);
      past[j] = before && j > 0 && j < s.K ? load(before + (s.K - 1 - j) * s.E + e, k) : splat(0);
    }
    for (int64_t t = 0; t < s.T; ++t) {
      past[0] = load(x + t * s.G + e, k);
      const vec pre = convolve(w, b, past[3], past[2], past[1], past[0]);
      store(y + t * s.E + e, pre * logistic_at(pre).value, k);
      past[3] = past[2], past[2] = past[1], past[1] = past[0];
    }
    for (int64_t j = 1; before && j < s.K; ++j) store(before + (s.K - 1 - j) * s.E + e, past[j], k);
  });
}

void conv_grad(const Sizes& s, const float* dy, const float* x, const float* taps, const float* bias, float* dx,
               bool add, float* dtaps, float* dbias, int64_t first, int64_t last) {
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    const vec zero = splat(0), b = bias ? load(bias + e, k) : zero;
    vec w[most_taps], dw[most_taps], db = zero;
    for (int64_t j = 0; j < most_taps; ++j) w[j] = load(taps + j * s.E + e, k), dw[j] = zero;
    vec x3 = zero, x2 = zero, x1 = zero, p3 = zero, p2 = zero, p1 = zero;  // p: gradients before the activation
    for (int64_t t = 0; t < s.T + most_taps - 1; ++t) {
      vec x0 = zero, p0 = zero;
      if (t < s.T) {
        x0 = load(x + t * s.G + e, k);
        p0 = load(dy + t * s.E + e, k) * silu_at(convolve(w, b, x3, x2, x1, x0)).slope;
        dw[0] = fma(p0, x3, dw[0]), dw[1] = fma(p0, x2, dw[1]);
        dw[2] = fma(p0, x1, dw[2]), dw[3] = fma(p0, x0, dw[3]);
        db = db + p0;
      }
      if (t >= most_taps - 1) {
        float* to = dx + (t - most_taps + 1) * s.G + e;
        store(to, fma(w[0], p0, fma(w[1], p1, fma(w[2], p2, fma(w[3], p3, add ? load(to, k) : zero)))), k);
      }
      x3 = x2, x2 = x1, x1 = x0, p3 = p2, p2 = p1, p1 = p0;
    }
    for (int64_t j = 0; j < most_taps; ++j) store(dtaps + j * s.E + e, dw[j], k);
    store(dbias + e, db, k);
  });
}

}  // namespace
}  // namespace mamba
