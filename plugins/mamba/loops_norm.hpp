// SPDX-License-Identifier: Apache-2.0
// The gated norm of Mamba-2 and its gradient, row by row, and the table of all loops.
#pragma once

#include "loops_ssd_grad.hpp"

namespace mamba {
namespace {

// 1 / sqrt(mean square + eps) of n numbers.
inline float scale_of(const float* x, int64_t n, float eps) {
  vec sums = splat(0.0f);
  for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
    const vec one = load(x + i, k);
    sums = fma(one, one, sums);
  });
  return 1.0f / __builtin_sqrtf(sum(sums) / static_cast<float>(n) + eps);
}

// scratch (columns): x silu(z).
template <class T>
void gated_norm(const NormSizes& s, const T* x, const T* z, const T* w, T* y, float* scratch) {
  const int64_t n = s.columns / s.groups;
  for_lanes(s.columns, [&](int64_t i, auto k)
                           SIMD_INLINE { store(scratch + i, load(x + i, k) * silu_at(load(z + i, k)).value, k); });
  for (int64_t first = 0; first < s.columns; first += n) {
    const vec scale = splat(scale_of(scratch + first, n, s.eps));
    for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
      store(y + first + i, load(w + first + i, k) * (load(scratch + first + i, k) * scale), k);
    });
  }
}

// With g = x silu(z), v = g scale and u = dy w: dg = scale (u - v mean(u v)), dw += dy v.
template <class T>
void gated_norm_grad(const NormSizes& s, const T* dy, const T* x, const T* z, const T* w, T* dx, T* dz, float* dw,
                     float* scratch) {
  const int64_t n = s.columns / s.groups;
  for_lanes(s.columns, [&](int64_t i, auto k)
                           SIMD_INLINE { store(scratch + i, load(x + i, k) * silu_at(load(z + i, k)).value, k); });
  for (int64_t first = 0; first < s.columns; first += n) {
    const float factor = scale_of(scratch + first, n, s.eps);
    const vec scale = splat(factor);
    vec sums = splat(0.0f);
    for_lanes(n, [&](int64_t at, auto k) SIMD_INLINE {
      const int64_t i = first + at;
      const vec v = load(scratch + i, k) * scale, out = load(dy + i, k);
      sums = fma(out * load(w + i, k), v, sums);
      store(dw + i, fma(out, v, load(dw + i, k)), k);
    });
    const vec mean = splat(sum(sums) / static_cast<float>(n));
    for_lanes(n, [&](int64_t at, auto k) SIMD_INLINE {
      const int64_t i = first + at;
      const vec v = load(scratch + i, k) * scale, u = load(dy + i, k) * load(w + i, k);
      const vec g = scale * (u - v * mean), value = load(x + i, k);
      const activation gate = silu_at(load(z + i, k));
      store(dz + i, g * value * gate.slope, k);
      store(dx + i, g * gate.value, k);
    });
  }
}

template <class T>
float gated_squares(int64_t n, const T* x, const T* z) {
  vec sums = splat(0.0f);
  for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
    const vec one = load(x + i, k) * silu_at(load(z + i, k)).value;
    sums = fma(one, one, sums);
  });
  return sum(sums);
}

template <class T>
void gated_squares_grad(int64_t n, const T* x, const T* z, float factor, const T* dx_acc, const T* dz_acc, T* dx,
                        T* dz) {
  for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
    const vec value = load(x + i, k);
    const activation gate = silu_at(load(z + i, k));
    const vec g = splat(factor) * (value * gate.value);
    const vec of_x = dx_acc ? load(dx_acc + i, k) : splat(0.0f), of_z = dz_acc ? load(dz_acc + i, k) : splat(0.0f);
    store(dx + i, of_x + g * gate.value, k);
    store(dz + i, of_z + g * value * gate.slope, k);
  });
}

template <class T>
void gated_norm_part(int64_t n, const T* x, const T* z, const T* w, T* y, float scale) {
  for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
    store(y + i, load(w + i, k) * (load(x + i, k) * silu_at(load(z + i, k)).value * splat(scale)), k);
  });
}

template <class T>
float gated_norm_part_grad(int64_t n, const T* dy, const T* x, const T* z, const T* w, T* dx, T* dz, float* dw,
                           float scale) {
  vec sums = splat(0.0f);
  for_lanes(n, [&](int64_t i, auto k) SIMD_INLINE {
    const vec value = load(x + i, k), out = load(dy + i, k), u = out * load(w + i, k), g = splat(scale) * u;
    const activation gate = silu_at(load(z + i, k));
    const vec v = value * gate.value * splat(scale);
    sums = fma(u, v, sums);
    store(dw + i, fma(out, v, load(dw + i, k)), k);
    store(dz + i, g * value * gate.slope, k);
    store(dx + i, g * gate.value, k);
  });
  return sum(sums);
}

template <class T>
constexpr TypedLoops<T> loops_for = {
    widen_all<T>,           conv<T>,          conv_grad<T>,          scan<T>,
    scan_grad<T>,           ssd<T>,           ssd_grad<T>,           gated_norm<T>,
    gated_norm_grad<T>,     gated_squares<T>, gated_squares_grad<T>, gated_norm_part<T>,
    gated_norm_part_grad<T>};

}  // namespace
}  // namespace mamba
