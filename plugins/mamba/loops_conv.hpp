// SPDX-License-Identifier: Apache-2.0
// causal_conv1d and its gradient for a register of channels. The taps are always treated as four: x3 .. x0 are the x of
// the last four tokens, the oldest first. All four stay in registers, so each x is loaded once.
#pragma once

#include "../common/simd/exp.hpp"
#include "../common/simd/half.hpp"
#include "loops.hpp"

namespace mamba {
namespace {

using namespace cpu;

// Offset of channel e of token t in a matrix (tokens, channels).
inline int64_t at(const Sizes& s, int64_t t, int64_t e) {
  return t * s.channels + e;
}
// Offset of channel e of x: the first channels of row t.
inline int64_t x_at(const Sizes& s, int64_t t, int64_t e) {
  return t * s.stride + e;
}
// Offset of channel e of the gate: the last channels of row t.
inline int64_t gate_at(const Sizes& s, int64_t t, int64_t e) {
  return t * s.stride + (s.stride - s.channels) + e;
}

// Calls body(e, lanes) for each register of the channels first .. last - 1; e is its first channel.
template <class Body>
SIMD_INLINE inline void for_channels(int64_t first, int64_t last, Body body) {
  for_lanes(last - first, [=](int64_t i, auto k) SIMD_INLINE { body(first + i, k); });
}

template <class T>
void widen_all(const T* x, float* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, load(x + i, k), k); });
}

struct activation {
  vec value, slope;
};
// silu(x) = x sigmoid(x); its slope is sigmoid(x) (1 + x (1 - sigmoid(x))).
inline activation silu_at(vec x) {
  const logistic s = logistic_at(x);
  return {x * s.value, s.value * fma(x, s.rest, splat(1.0f))};
}

// The sum over the taps, the oldest token first: one fixed order.
inline vec convolve(const vec* w, vec bias, vec x3, vec x2, vec x1, vec x0) {
  return fma(w[3], x0, fma(w[2], x1, fma(w[1], x2, fma(w[0], x3, bias))));
}

template <class T>
void conv(const Sizes& s, const T* x, const float* taps, const float* bias, T* y, T* before, int64_t first,
          int64_t last) {
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    // Load the weights, and the tokens before the first one: past[j] is the x of the token j before the current one.
    vec w[most_taps], past[most_taps];
    const vec b = bias ? load(bias + e, k) : splat(0);
    for (int64_t j = 0; j < most_taps; ++j) {
      w[j] = load(taps + at(s, j, e), k);
      past[j] = before && j > 0 && j < s.taps ? load(before + at(s, s.taps - 1 - j, e), k) : splat(0);
    }
    // y = silu(bias + sum of the taps), then all tokens move one place into the past.
    for (int64_t t = 0; t < s.tokens; ++t) {
      past[0] = load(x + x_at(s, t, e), k);
      const vec pre = convolve(w, b, past[3], past[2], past[1], past[0]);
      store(y + at(s, t, e), pre * logistic_at(pre).value, k);
      past[3] = past[2], past[2] = past[1], past[1] = past[0];
    }
    // For a running sequence: keep the last tokens for the next call.
    for (int64_t j = 1; before && j < s.taps; ++j) store(before + at(s, s.taps - 1 - j, e), past[j], k);
  });
}

// With p[t] = dy[t] silu'(pre[t]), the gradient before the activation:
//   dw[j] = sum over t of p[t] x[t - 3 + j],  dbias = sum over t of p[t],  both in the order of the tokens;
//   dx[t] = w[3] p[t] + w[2] p[t + 1] + w[1] p[t + 2] + w[0] p[t + 3].
// dx[t] needs the p of three later tokens, so the loop writes dx three tokens late and runs three tokens longer.
template <class T>
void conv_grad(const Sizes& s, const T* dy, const T* x, const float* taps, const float* bias, T* dx, bool add,
               bool more, float* dtaps, float* dbias, int64_t first, int64_t last) {
  for_channels(first, last, [&](int64_t e, auto k) SIMD_INLINE {
    const vec zero = splat(0), b = bias ? load(bias + e, k) : zero;
    vec w[most_taps], dw[most_taps], db = more ? load(dbias + e, k) : zero;
    for (int64_t j = 0; j < most_taps; ++j)
      w[j] = load(taps + at(s, j, e), k), dw[j] = more ? load(dtaps + at(s, j, e), k) : zero;
    vec x3 = zero, x2 = zero, x1 = zero, p3 = zero, p2 = zero, p1 = zero;
    for (int64_t t = 0; t < s.tokens + most_taps - 1; ++t) {
      vec x0 = zero, p0 = zero;  // zero after the last token
      if (t < s.tokens) {
        x0 = load(x + x_at(s, t, e), k);
        p0 = load(dy + at(s, t, e), k) * silu_at(convolve(w, b, x3, x2, x1, x0)).slope;
        dw[0] = fma(p0, x3, dw[0]), dw[1] = fma(p0, x2, dw[1]);
        dw[2] = fma(p0, x1, dw[2]), dw[3] = fma(p0, x0, dw[3]);
        db = db + p0;
      }
      if (t >= most_taps - 1) {
        T* to = dx + x_at(s, t - most_taps + 1, e);
        store(to, fma(w[0], p0, fma(w[1], p1, fma(w[2], p2, fma(w[3], p3, add ? load(to, k) : zero)))), k);
      }
      x3 = x2, x2 = x1, x1 = x0, p3 = p2, p2 = p1, p1 = p0;
    }
    for (int64_t j = 0; j < most_taps; ++j) store(dtaps + at(s, j, e), dw[j], k);
    store(dbias + e, db, k);
  });
}

}  // namespace
}  // namespace mamba
