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

  template <class T>
  void run(const T* x, const T* w, const T* bias, T* y) const {
    const gemv_call<T> call{x, w, bias, y, m, n, k};
    const simd_table& simd = simd_for(device);
    in_ranges(threads, n, k, 16, [&](int64_t first, int64_t last) { simd.of<T>().gemv(call, first, last); });
  }
};

}  // namespace cpu
