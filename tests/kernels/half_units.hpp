// SPDX-License-Identifier: Apache-2.0
// The distance of a 16-bit tensor from the one expected.
#pragma once

#include "kernel_harness.hpp"

namespace kernels_test {

constexpr int32_t half_types[] = {ENG_BF16, ENG_F16};

// Units in the last place between element i of two tensors of one 16-bit type: 0 for equal values, 1 for neighbours.
// Two NaNs are equal; a NaN is far from every number.
inline int64_t units(const Tensor& a, const Tensor& b, int64_t i) {
  const int64_t infinite = HalfType(b.d.dtype).infinite();
  const auto place = [&](const Tensor& t) {
    const int64_t bits = t.as<uint16_t>()[i], size = bits & 0x7fff;
    return size > infinite ? int64_t{1} << 20 : bits & 0x8000 ? -size : size;
  };
  return std::abs(place(a) - place(b));
}

// The number of elements of `got` that are more than one unit from `want`, and also, where sums cancel, more than
// `tolerance` of the largest value.
inline int64_t wrong(const Tensor& got, const Tensor& want, double tolerance) {
  double top = 0;
  for (int64_t i = 0; i < want.size(); ++i)
    if (std::isfinite(want.at(i))) top = std::max(top, std::fabs(want.at(i)));
  int64_t n = 0;
  for (int64_t i = 0; i < want.size(); ++i)
    n += units(got, want, i) > 1 && !(std::fabs(got.at(i) - want.at(i)) <= tolerance * top);
  return n;
}

// The number of elements of `got` that are not equal to those of `want`. A result that was rounded once more on its way
// differs from the exact one, rounded once, in far more elements than a sum in f32 does.
inline int64_t uneven(const Tensor& got, const Tensor& want) {
  int64_t n = 0;
  for (int64_t i = 0; i < want.size(); ++i) n += units(got, want, i) != 0;
  return n;
}

}  // namespace kernels_test
