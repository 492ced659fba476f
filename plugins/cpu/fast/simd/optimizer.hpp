// SPDX-License-Identifier: Apache-2.0
// The step's arithmetic. Every line is one IEEE operation as engine/ops.h orders them: these functions give
// the same bits whatever the width.
#pragma once

#include "../../../common/simd/vec.hpp"
#include "table.hpp"

namespace cpu {
namespace {

void sum_squares(const float* x, float* out, int64_t begin, int64_t end) {
  constexpr int64_t lanes = 64, chunk = 4096;
  for (int64_t c = begin; c < end; ++c) {
    const float* const p = x + c * chunk;
    float fold[lanes];
    // The order is part of the op: lane j sums elements j, j + 64, ... of a chunk. Eight registers of lanes at a time
    // hide the latency of the multiply-adds.
    constexpr int64_t together = lanes / width < 8 ? lanes / width : 8;
    for (int64_t j = 0; j < lanes; j += together * width) {
      vec a[together];
      for (int64_t k = 0; k < together; ++k) a[k] = splat(0.0f);
      for (int64_t i = j; i < chunk; i += lanes)
        for (int64_t k = 0; k < together; ++k) {
          const vec v = load_all(p + i + k * width);
          a[k] = fma(v, v, a[k]);
        }
      for (int64_t k = 0; k < together; ++k) store_all(fold + j + k * width, a[k]);
    }
    for (int64_t half = lanes / 2; half > 0; half /= 2)
      for (int64_t j = 0; j < half; ++j) fold[j] = fold[j] + fold[j + half];
    out[c] = fold[0];
  }
}

template <bool decay>
SIMD_INLINE inline void adamw_range(const adamw_call& c, int64_t begin, int64_t n) {
  const float *grad = c.grad + begin, *p_in = c.p_in + begin, *m_in = c.m_in + begin, *v_in = c.v_in + begin;
  float *p_out = c.p + begin, *m_out = c.m + begin, *v_out = c.v + begin;
  const vec clip = splat(c.clip), rest1 = splat(c.rest1), beta2 = splat(c.beta2), rest2 = splat(c.rest2);
  const vec lr = splat(c.lr), c1 = splat(c.c1), c2 = splat(c.c2), eps = splat(c.eps), wd = splat(c.wd);
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec g = load(grad + i, k) * clip;
    vec m = load(m_in + i, k), v = load(v_in + i, k), p = load(p_in + i, k);
    m = fma(rest1, g - m, m);
    v = fma(beta2, v, rest2 * (g * g));
    if (decay) p = p - lr * (wd * p);
    p = p - (lr * m / c1) / (sqrt(v) / c2 + eps);
    store(m_out + i, m, k);
    store(v_out + i, v, k);
    store(p_out + i, p, k);
  });
}

void adamw(const adamw_call& c, int64_t begin, int64_t end) {
  if (c.wd != 0.0f)
    adamw_range<true>(c, begin, end - begin);
  else
    adamw_range<false>(c, begin, end - begin);
}

template <bool with_buffer, bool nesterov>
SIMD_INLINE inline void sgd_range(const sgd_call& c, int64_t begin, int64_t n) {
  const float *grad = c.grad + begin, *p_in = c.p_in + begin, *b_in = with_buffer ? c.b_in + begin : nullptr;
  float *p_out = c.p + begin, *b_out = with_buffer ? c.b + begin : nullptr;
  const vec clip = splat(c.clip), wd = splat(c.wd), momentum = splat(c.momentum), lr = splat(c.lr);
  const bool first = c.first;
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec p = load(p_in + i, k), g = fma(wd, p, load(grad + i, k) * clip);
    vec b = g;
    if (with_buffer) {
      if (!first) b = fma(momentum, load(b_in + i, k), g);
      store(b_out + i, b, k);
    }
    const vec step = nesterov ? g + momentum * b : b;
    store(p_out + i, p - lr * step, k);
  });
}

void sgd(const sgd_call& c, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  if (c.b && c.nesterov)
    sgd_range<true, true>(c, begin, n);
  else if (c.b)
    sgd_range<true, false>(c, begin, n);
  else if (c.nesterov)
    sgd_range<false, true>(c, begin, n);
  else
    sgd_range<false, false>(c, begin, n);
}

}  // namespace
}  // namespace cpu
