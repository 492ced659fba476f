// SPDX-License-Identifier: Apache-2.0
// Rows of layer_norm and its gradient.
#pragma once

#include "norm.hpp"

namespace cpu {
namespace {

// Affine: 0 neither weight nor bias, 1 weight, 2 both.
template <int Affine, class T>
SIMD_INLINE inline void layer_norm_rows(const layer_norm_forward<T>& c, int64_t begin, int64_t end) {
  const T *const w = c.w, *const bias = c.bias;
  for (int64_t row = begin; row < end; ++row) {
    const T* s = c.x + row * c.h;
    float total;
    if (c.residual) {
      const T *x = s, *r = c.residual + row * c.h;
      T* const out = c.s + row * c.h;
      total = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE {
        const vec v = load(x + i, k) + load(r + i, k);
        store(out + i, v, k);
        a = a + rounded<T>(v);
      });
      s = out;
    } else {
      total = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE { a = a + load(s + i, k); });
    }
    const float mean = total / float(c.h);
    const vec middle = splat(mean);
    // In the last register, lanes after the end would count as -mean. They are loaded as mean, which counts as 0.
    const float squares = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE {
      const vec v = load_or(s + i, k, middle) - middle;
      a = fma(v, v, a);
    });
    const float rstd = 1.0f / __builtin_sqrtf(squares / float(c.h) + c.eps);
    c.stats[2 * row] = mean, c.stats[2 * row + 1] = rstd;
    T* const y = c.y + row * c.h;
    for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE {
      vec n = (load(s + i, k) - middle) * splat(rstd);
      if (Affine == 1) n = n * load(w + i, k);
      if (Affine == 2) n = fma(n, load(w + i, k), load(bias + i, k));
      store(y + i, n, k);
    });
  }
}

template <class T>
void layer_norm(const layer_norm_forward<T>& c, int64_t begin, int64_t end) {
  if (c.bias)
    layer_norm_rows<2>(c, begin, end);
  else if (c.w)
    layer_norm_rows<1>(c, begin, end);
  else
    layer_norm_rows<0>(c, begin, end);
}

// With n = (s - mean) rstd and g = dy w: dx = rstd (g - mean(g) - n mean(g n)) [+ ds]; dw += dy n and dbias += dy,
// row after row. dx may be ds.
template <bool Weight, class T>
SIMD_INLINE inline void layer_norm_grad_rows(const layer_norm_backward<T>& c, int64_t begin, int64_t end, float* dw,
                                             float* dbias) {
  const T* const w = c.w;
  if (Weight)
    for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE {
      store(dw + i, splat(0.0f), k);
      store(dbias + i, splat(0.0f), k);
    });
  for (int64_t row = begin; row < end; ++row) {
    const T *dy = c.dy + row * c.h, *s = c.s + row * c.h, *ds = c.ds ? c.ds + row * c.h : nullptr;
    T* const dx = c.dx + row * c.h;
    const float rstd = c.stats[2 * row + 1];
    const vec mean = splat(c.stats[2 * row]), r = splat(rstd);
    const auto pull = [=](int64_t i, auto k) SIMD_INLINE {
      const vec d = load(dy + i, k);
      return Weight ? d * load(w + i, k) : d;
    };
    const float sum = sum_lanes(c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE { a = a + pull(i, k); });
    const float dot = sum_lanes(
        c.h, [=](int64_t i, auto k, vec& a) SIMD_INLINE { a = fma(pull(i, k), (load(s + i, k) - mean) * r, a); });
    const vec g_mean = splat(sum / float(c.h)), along = splat(-(dot / float(c.h)));
    const auto element = [=](int64_t i, auto k, vec add) SIMD_INLINE {
      const vec d = load(dy + i, k), n = (load(s + i, k) - mean) * r;
      const vec g = Weight ? d * load(w + i, k) : d;
      if (Weight) {
        store(dw + i, fma(d, n, load(dw + i, k)), k);
        store(dbias + i, load(dbias + i, k) + d, k);
      }
      store(dx + i, fma(r, fma(along, n, g - g_mean), add), k);
    };
    if (ds)
      for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE { element(i, k, load(ds + i, k)); });
    else
      for_lanes(c.h, [=](int64_t i, auto k) SIMD_INLINE { element(i, k, splat(0.0f)); });
  }
}

template <class T>
void layer_norm_grad(const layer_norm_backward<T>& c, int64_t begin, int64_t end, float* dw, float* dbias) {
  if (c.w)
    layer_norm_grad_rows<true>(c, begin, end, dw, dbias);
  else
    layer_norm_grad_rows<false>(c, begin, end, dw, dbias);
}

}  // namespace
}  // namespace cpu
