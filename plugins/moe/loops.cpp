// SPDX-License-Identifier: Apache-2.0
// Compiled once per instruction set, with that set's compiler flags and CPU_ISA = avx512, avx2 or portable.
#include "loops.hpp"

#include "../common/simd/activation.hpp"
#include "../common/simd/half.hpp"

namespace moe {
namespace {

using namespace cpu;

template <class Act, class T>
void gated(const T* gate, const T* up, float weight, T* y, int64_t n) {
  const vec w = splat(weight);
  for_lanes(
      n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, Act::value(load(gate + i, k)) * load(up + i, k) * w, k); });
}

template <class Act, class T>
float gated_grad(const T* dy, const T* gate, const T* up, float weight, T* dgate, T* dup, int64_t n) {
  const vec w = splat(weight);
  vec total = splat(0.0f);
  vec* const at = &total;
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec d = load(dy + i, k), u = load(up + i, k);
    const value_slope a = Act::both(load(gate + i, k));
    *at = fma(d * a.value, u, *at);
    store(dgate + i, d * w * u * a.slope, k);
    store(dup + i, d * w * a.value, k);
  });
  return sum(total);
}

template <class T>
void sum_rows(const T* first, const int32_t* place, int64_t count, T* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    vec total = load(first + int64_t{place[0]} * n + i, k);
    for (int64_t j = 1; j < count; ++j) total = total + load(first + int64_t{place[j]} * n + i, k);
    store(y + i, total, k);
  });
}

template <class T>
void widen_row(const T* x, float* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, load(x + i, k), k); });
}
template <class T>
void narrow_row(const float* x, T* y, int64_t n) {
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE { store(y + i, load(x + i, k), k); });
}

float exps(float* x, float most, int64_t n) {
  const vec shift = splat(most), far = splat(-1e30f);
  vec total = splat(0.0f);
  vec* const at = &total;
  for_lanes(n, [=](int64_t i, auto k) SIMD_INLINE {
    const vec e = exp(load_or(x + i, k, far) - shift);  // lanes without an element become 0
    *at = *at + e;
    store(x + i, e, k);
  });
  return sum(total);
}

template <class T>
constexpr TypedLoops<T> loops_of = {
    {gated<silu, T>, gated<gelu, T>, gated<gelu_tanh, T>, gated<relu, T>},
    {gated_grad<silu, T>, gated_grad<gelu, T>, gated_grad<gelu_tanh, T>, gated_grad<relu, T>},
    sum_rows<T>,
    widen_row<T>,
    narrow_row<T>};

}  // namespace

extern const Loops MOE_JOIN(loops_, CPU_ISA) = {loops_of<float>, loops_of<bf16>, loops_of<f16>, exps};

}  // namespace moe
