// SPDX-License-Identifier: Apache-2.0
// Loops for a running sequence: few queries against all keys so far, and products with few rows.
#pragma once

#include "../../../common/simd/exp.hpp"
#include "../../../common/simd/tanh.hpp"
#include "norm.hpp"

namespace cpu {
namespace {

template <class T>
SIMD_INLINE inline float dot(const T* a, const T* b, int64_t n) {
  return sum_lanes(n, [=](int64_t i, auto k, vec& sum) SIMD_INLINE { sum = fma(load(a + i, k), load(b + i, k), sum); });
}

template <class T>
SIMD_INLINE inline float load_one(const T* p) {
  if constexpr (__is_same(T, float))
    return *p;
  else
    return sum(load_some(p, 1));
}

// o = softmax(scale q k^T) v, with a cap softmax(cap tanh(scale q k^T / cap)) v. Reading k and v takes the time, so
// each of their rows is read from memory once and used for all the heads: first all scores, then the softmax of each
// head, then o as a sum over the rows of v in order.
template <class T>
void attend(const attend_call<T>& c) {
  for (int64_t j = 0; j < c.keys; ++j)
    for (int64_t h = 0; h < c.heads; ++h)
      c.scores[h * c.keys + j] = c.scale * dot(c.q + h * c.d, c.k + j * c.stride, c.d);
  if (c.cap != 0.0f) {
    const float cap = c.cap, inverse = 1.0f / cap;
    float* const s = c.scores;
    for_lanes(c.heads * c.keys, [=](int64_t i, auto k) SIMD_INLINE {
      store(s + i, splat(cap) * tanh(splat(inverse) * load(s + i, k)), k);
    });
  }
  for (int64_t h = 0; h < c.heads; ++h) {
    float* const p = c.scores + h * c.keys;
    float top = p[0];
    for (int64_t j = 1; j < c.keys; ++j) top = p[j] > top ? p[j] : top;
    for_lanes(c.keys, [=](int64_t j, auto k) SIMD_INLINE { store(p + j, exp(load(p + j, k) - splat(top)), k); });
    const float all = sum_lanes(c.keys, [=](int64_t j, auto k, vec& sum) SIMD_INLINE { sum = sum + load(p + j, k); });
    for_lanes(c.keys, [=](int64_t j, auto k) SIMD_INLINE { store(p + j, load(p + j, k) * splat(1.0f / all), k); });
    float* const o = c.sums + h * c.d;
    for_lanes(c.d, [=](int64_t i, auto k) SIMD_INLINE { store(o + i, splat(0.0f), k); });
  }
  constexpr int64_t block = 8;  // rows of v that are added each time o is loaded and stored
  for (int64_t j = 0; j < c.keys; j += block) {
    const int64_t n = c.keys - j < block ? c.keys - j : block;
    for (int64_t h = 0; h < c.heads; ++h) {
      const float* const p = c.scores + h * c.keys + j;
      const T* const v = c.v + j * c.stride;
      float* const o = c.sums + h * c.d;
      const int64_t stride = c.stride;
      for_lanes(c.d, [=](int64_t i, auto k) SIMD_INLINE {
        vec sum = load(o + i, k);
        for (int64_t r = 0; r < n; ++r) sum = fma(splat(p[r]), load(v + r * stride + i, k), sum);
        store(o + i, sum, k);
      });
    }
  }
  if constexpr (!__is_same(T, float)) {
    const float* const sums = c.sums;
    T* const o = c.o;
    for_lanes(c.heads * c.d, [=](int64_t i, auto k) SIMD_INLINE { store(o + i, load(sums + i, k), k); });
  }
}

template <class T>
void gemv(const gemv_call<T>& c, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n)
    for (int64_t m = 0; m < c.m; ++m) {
      const float y = dot(c.w + n * c.k, c.x + m * c.k, c.k) + (c.bias ? load_one(c.bias + n) : 0.0f);
      store_some(c.y + m * c.n + n, splat(y), 1);
    }
}

}  // namespace
}  // namespace cpu
