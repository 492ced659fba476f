// SPDX-License-Identifier: Apache-2.0
// y = act(gate) * up, y = act(x) and their gradients.
#pragma once

#include "../../../common/simd/activation.hpp"
#include "../../../common/simd/half.hpp"
#include "table.hpp"

namespace cpu {
namespace {

template <class Act, class T>
void gated(const T* gate, const T* up, T* y, int64_t n) {
  for_lanes(n,
            [=](int64_t i, auto k) SIMD_INLINE { store(y + i, Act::value(load(gate + i, k)) * load(up + i, k), k); });
}

// dgate may be gate and dup may be up: an element is read before it is written.
template <class Act, class T>
void gated_grad(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec d = load(dy + i, k), u = load(up + i, k);
    const value_slope a = Act::both(load(gate + i, k));
    store(dgate + i, d * u * a.slope, k);
    store(dup + i, d * a.value, k);
  });
}

template <class Act, class T>
void activation(const T* x, T* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, Act::value(load(x + i, k)), k); });
}

template <class Act, class T>
void activation_grad(const T* dy, const T* x, T* dx, int64_t n) {
  for_lanes(
      n, [=](int64_t i, auto k) SIMD_INLINE { store(dx + i, load(dy + i, k) * Act::both(load(x + i, k)).slope, k); });
}

template <class T>
void scale(float factor, const T* x, T* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, splat(factor) * load(x + i, k), k); });
}

template <class T, class Sum>
void add(const T* a, const Sum* b, Sum* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, load(a + i, k) + load(b + i, k), k); });
}

}  // namespace
}  // namespace cpu
