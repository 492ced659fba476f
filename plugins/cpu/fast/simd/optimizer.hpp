// SPDX-License-Identifier: Apache-2.0
// The step's arithmetic. Every line is one IEEE operation as engine/ops.h orders them: these functions give
// the same bits whatever the width.
#pragma once

#include "../../../common/simd/random.hpp"
#include "table.hpp"

namespace cpu {
namespace {

template <class T>
void sum_squares(const T* x, float* out, int64_t begin, int64_t end) {
  constexpr int64_t lanes = 64, chunk = 4096;
  for (int64_t c = begin; c < end; ++c) {
    const T* const p = x + c * chunk;
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

// p at element i as the 16-bit weight, if there is one.
template <class T, class Lanes>
SIMD_INLINE inline void store_weight(T* weight, int64_t i, vec p, Lanes k) {
  if constexpr (half<T>) store(weight + i, p, k);
}

// One update in a register: each function takes what an element has, and leaves what it gets.
template <bool decay>
struct adamw_step {
  vec clip, lr, c1, c2, rest1, beta2, rest2, eps, wd;
  SIMD_INLINE explicit adamw_step(const adamw_numbers& c)
      : clip(splat(c.clip)),
        lr(splat(c.lr)),
        c1(splat(c.c1)),
        c2(splat(c.c2)),
        rest1(splat(c.rest1)),
        beta2(splat(c.beta2)),
        rest2(splat(c.rest2)),
        eps(splat(c.eps)),
        wd(splat(c.wd)) {}
  static constexpr int states = 2;
  SIMD_INLINE void operator()(vec grad, vec& p, vec (&s)[2]) const {
    const vec g = grad * clip;
    const vec m = fma(rest1, g - s[0], s[0]), v = fma(beta2, s[1], rest2 * (g * g));
    if (decay) p = p - lr * (wd * p);
    p = p - (lr * m / c1) / (sqrt(v) / c2 + eps);
    s[0] = m, s[1] = v;
  }
};

template <bool with_buffer, bool nesterov>
struct sgd_step {
  vec clip, wd, momentum, lr;
  bool first;
  SIMD_INLINE explicit sgd_step(const sgd_numbers& c)
      : clip(splat(c.clip)), wd(splat(c.wd)), momentum(splat(c.momentum)), lr(splat(c.lr)), first(c.first) {}
  static constexpr int states = with_buffer ? 1 : 0;
  SIMD_INLINE void operator()(vec grad, vec& p, vec (&s)[2]) const {
    const vec g = fma(wd, p, grad * clip);
    vec b = g;
    if (with_buffer && !first) b = fma(momentum, s[0], g);
    s[0] = b;
    p = p - lr * (nesterov ? g + momentum * b : b);
  }
};

template <class T, class Step>
SIMD_INLINE inline void update_range(const Step step, const update_memory<float, float>& to, T* weight, int64_t begin,
                                     int64_t n) {
  const float *grad = to.grad + begin, *p_in = to.p_in + begin;
  const float *in0 = Step::states > 0 ? to.in[0] + begin : nullptr,
              *in1 = Step::states > 1 ? to.in[1] + begin : nullptr;
  float* p_out = to.p + begin;
  float *out0 = Step::states > 0 ? to.out[0] + begin : nullptr, *out1 = Step::states > 1 ? to.out[1] + begin : nullptr;
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec g = load(grad + i, k);
    vec p = load(p_in + i, k), s[2];
    if (Step::states > 0) s[0] = load(in0 + i, k);
    if (Step::states > 1) s[1] = load(in1 + i, k);
    step(g, p, s);
    if (Step::states > 0) store(out0 + i, s[0], k);
    if (Step::states > 1) store(out1 + i, s[1], k);
    store(p_out + i, p, k);
    store_weight(weight, begin + i, p, k);
  });
}

// The update in bf16: p takes the first of the random numbers of an element, the states those after it.
template <class G, class Step>
SIMD_INLINE inline void rounded_range(const Step step, const update_memory<G, bf16>& to, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at += rounding_group) {
    uint32_t r[3][rounding_group];
    rounding_words(to.key, to.first + at, r);
    const uint32_t *r0 = r[0], *r1 = r[1], *r2 = r[2];
    const G* grad = to.grad + at;
    const bf16 *p_in = to.p_in + at, *in0 = Step::states > 0 ? to.in[0] + at : nullptr,
               *in1 = Step::states > 1 ? to.in[1] + at : nullptr;
    bf16 *p_out = to.p + at, *out0 = Step::states > 0 ? to.out[0] + at : nullptr,
         *out1 = Step::states > 1 ? to.out[1] + at : nullptr;
    for_lanes(end - at < rounding_group ? end - at : rounding_group, [=](int64_t i, auto k) SIMD_INLINE {
      const vec g = load(grad + i, k);
      vec p = load(p_in + i, k), s[2];
      if (Step::states > 0) s[0] = load(in0 + i, k);
      if (Step::states > 1) s[1] = load(in1 + i, k);
      step(g, p, s);
      if (Step::states > 0) store_by(out0 + i, s[0], r1 + i, k);
      if (Step::states > 1) store_by(out1 + i, s[1], r2 + i, k);
      store_by(p_out + i, p, r0 + i, k);
    });
  }
}

// f(step) with the step of these numbers.
template <class F>
SIMD_INLINE inline void with_step(const adamw_numbers& c, bool, F f) {
  if (c.wd != 0.0f)
    f(adamw_step<true>(c));
  else
    f(adamw_step<false>(c));
}
template <class F>
SIMD_INLINE inline void with_step(const sgd_numbers& c, bool buffer, F f) {
  if (buffer && c.nesterov)
    f(sgd_step<true, true>(c));
  else if (buffer)
    f(sgd_step<true, false>(c));
  else if (c.nesterov)
    f(sgd_step<false, true>(c));
  else
    f(sgd_step<false, false>(c));
}

template <class T, class Numbers>
SIMD_INLINE inline void update(const Numbers& c, const update_memory<float, float>& to, T* weight, int64_t begin,
                               int64_t end) {
  with_step(c, to.out[0] != nullptr,
            [&](const auto step) SIMD_INLINE { update_range(step, to, weight, begin, end - begin); });
}
template <class T>
void adamw(const adamw_numbers& c, const update_memory<float, float>& to, T* weight, int64_t begin, int64_t end) {
  update(c, to, weight, begin, end);
}
template <class T>
void sgd(const sgd_numbers& c, const update_memory<float, float>& to, T* weight, int64_t begin, int64_t end) {
  update(c, to, weight, begin, end);
}

template <class G, class Numbers>
SIMD_INLINE inline void update_rounded(const Numbers& c, const update_memory<G, bf16>& to, int64_t begin, int64_t end) {
  with_step(c, to.out[0] != nullptr, [&](const auto step) SIMD_INLINE { rounded_range(step, to, begin, end); });
}
template <class G>
void adamw_rounded(const adamw_numbers& c, const update_memory<G, bf16>& to, int64_t begin, int64_t end) {
  update_rounded(c, to, begin, end);
}
template <class G>
void sgd_rounded(const sgd_numbers& c, const update_memory<G, bf16>& to, int64_t begin, int64_t end) {
  update_rounded(c, to, begin, end);
}

}  // namespace
}  // namespace cpu
