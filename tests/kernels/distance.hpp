// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "kernel_harness.hpp"

namespace kernels_test {

// The largest distance, in units of the larger number, of at least 1.
inline double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t k = 0; k < a.size(); ++k)
    most = std::max(most, std::fabs(a.at(k) - b.at(k)) / std::max(1.0, std::fabs(b.at(k))));
  return most;
}

}  // namespace kernels_test
