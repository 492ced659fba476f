// SPDX-License-Identifier: Apache-2.0
// A sum in f64 in a fixed order that many threads can keep: as eng.finish/1 adds its partials.
#pragma once

#include <cstdint>

namespace common {

constexpr int sum_lanes = 1024;

// The sum of x(0) ... x(n - 1): lane j of 1,024 adds elements j, j + 1024, ... in order; then the lanes are folded in a
// balanced tree (j + j+512, then +256, ...).
template <class X>
double sum_in_lanes(int64_t n, X&& x) {
  double lane[sum_lanes] = {};
  for (int64_t i = 0; i < n; ++i) lane[i % sum_lanes] += static_cast<double>(x(i));
  for (int half = sum_lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

}  // namespace common
