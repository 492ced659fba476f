// SPDX-License-Identifier: Apache-2.0
// Rows of rms_norm, its gradient, and rope.
#pragma once

#include "../../../common/simd/half.hpp"
#include "table.hpp"

namespace cpu {
namespace {

// Four registers of partial sums hide the latency of an addition. The order of summation depends on the width only:
// element i goes to register (i / width) % 4, lane i % width; then registers are added pairwise, then lanes.
struct sums {
  vec a[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  SIMD_INLINE float total() const { return sum((a[0] + a[1]) + (a[2] + a[3])); }
};

// Calls body(i, lanes, accumulator) for each register of n elements and returns the sum of the accumulators. The last,
// partial register goes to accumulator 3.
template <class Body>
SIMD_INLINE inline float sum_lanes(int64_t n, Body body) {
  sums s;
  int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width)
    for (int j = 0; j < 4; ++j) body(i + j * width, all_lanes{}, s.a[j]);
  int j = 0;
  for (; i + width <= n; i += width, ++j) body(i, all_lanes{}, s.a[j]);
  if (i < n) body(i, some_lanes{n - i}, s.a[3]);
  return s.total();
}

// As it reads after it has been stored in T.
template <class T>
SIMD_INLINE inline vec rounded(vec v) {
  if constexpr (__is_same(T, float))
    return v;
  else
    return widen(narrow(v, T{}), T{});
}

// Rows begin .. end - 1. Each row is read twice: for s = x [+ residual] and its sum of squares, then for
// y = s rstd w with rstd = 1 / sqrt(mean square + eps), s as it is stored.
template <class T, class X>
void rms_norm(const norm_forward<T, X>& c, int64_t begin, int64_t end) {
  const T* const w = c.w;
  for (int64_t row = begin; row < end; ++row) {
    const X* s = c.x + row * c.h;
    float total;
    if (c.residual) {
      const X *x = s, *r = c.residual + row * c.h;
      X* const out = c.s + row * c.h;
      total = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE {
        const vec sum = load(x + i, k) + load(r + i, k), v = rounded<X>(sum);
        store(out + i, sum, k);
        a = fma(v, v, a);
      });
      s = out;
    } else {
      total = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE {
        const vec v = load(s + i, k);
        a = fma(v, v, a);
      });
    }
    const float rstd = 1.0f / __builtin_sqrtf(total / float(c.h) + c.eps);
    c.rstd[row] = rstd;
    T* const y = c.y + row * c.h;
    for_lanes(c.h,
              [=](int64_t i, auto k) SIMD_INLINE { store(y + i, load(s + i, k) * splat(rstd) * load(w + i, k), k); });
  }
}

// dx = rstd (dy w - s rstd^2 mean(dy w s)) [+ ds]; dw is the sum over these rows, in order, of dy s rstd. dx may be ds.
// Each row is read twice: for dot = sum of dy w s, then for dx and dw.
template <class T, class X>
void rms_norm_grad(const norm_backward<T, X>& c, int64_t begin, int64_t end, float* dw) {
  const T* const w = c.w;
  for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE { store(dw + i, splat(0.0f), k); });
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = c.dy + row * c.h;
    const X *s = c.s + row * c.h, *ds = c.ds ? c.ds + row * c.h : nullptr;
    X* const dx = c.dx + row * c.h;
    const float rstd = c.rstd[row];
    const float dot = sum_lanes(c.h, [=](int64_t i, auto k, vec& a)
                                         SIMD_INLINE { a = fma(load(dy + i, k) * load(w + i, k), load(s + i, k), a); });
    const float pull = -(dot / float(c.h)) * rstd * rstd * rstd;
    const auto element = [=](int64_t i, auto k, vec add) SIMD_INLINE {
      const vec d = load(dy + i, k) * splat(rstd), v = load(s + i, k);
      store(dw + i, fma(d, v, load(dw + i, k)), k);
      store(dx + i, fma(splat(pull), v, fma(d, load(w + i, k), add)), k);
    };
    if (ds)
      for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE { element(i, k, load(ds + i, k)); });
    else
      for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE { element(i, k, splat(0.0f)); });
  }
}

// Rows are tokens: x (rows, heads * 2 d), table (..., 2 d) = [cos | sin]. Turns each pair (x[i], x[d + i]) of a head by
// the angle of its position, or back if `inverse`. y may be x.
template <class T>
void rope(const rope_call<T>& c, int64_t begin, int64_t end) {
  const int64_t d = c.d;
  const vec sign = splat(c.inverse ? -1.0f : 1.0f);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t position = c.positions ? c.positions[row] : row % c.t;
    const float *cosine = c.table + position * 2 * d, *sine = cosine + d;
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t at = (row * c.heads + head) * 2 * d;
      const T* const x = c.x + at;
      T* const y = c.y + at;
      for_lanes(d, [=](int64_t i, auto k) SIMD_INLINE {
        const vec x1 = load(x + i, k), x2 = load(x + d + i, k);
        const vec co = load(cosine + i, k), si = load(sine + i, k) * sign;
        store(y + i, fms(x1, co, x2 * si), k);
        store(y + d + i, fma(x2, co, x1 * si), k);
      });
    }
  }
}

}  // namespace
}  // namespace cpu
