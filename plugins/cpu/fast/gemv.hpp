// SPDX-License-Identifier: Apache-2.0
// y (m, n) = x (m, k) w (n, k)^T + bias with few rows: each weight is read once and used m times, so the time is that
// of reading w. Threads share the rows of w.
#pragma once

#include "simd/select.hpp"

namespace cpu {

struct Gemv {
  static constexpr int64_t most_rows = 4;
  const void* device;
  int64_t m, n, k;
  unsigned threads;

  void run(const float* x, const float* w, const float* bias, float* y) const {
    const gemv_call call{x, w, bias, y, m, n, k};
    const simd_table& simd = simd_for(device);
    in_ranges(threads, n, k, 16, [&](int64_t first, int64_t last) { simd.gemv(call, first, last); });
  }
};

}  // namespace cpu
