// SPDX-License-Identifier: Apache-2.0
// Sums over rows. They are f32 until all of an element's terms are added, then rounded once.
#pragma once

#include "../../../common/simd/half.hpp"
#include "table.hpp"

namespace cpu {
namespace {

// y = [acc +] (chunk 0 + chunk 1 + ...), chunks in order, for the columns begin .. end - 1.
template <class T>
void fold_chunks(const float* chunks, int64_t count, int64_t stride, const T* acc, T* y, int64_t begin, int64_t end) {
  for_lanes(end - begin, [=](int64_t i, auto k) SIMD_INLINE {
    const float* p = chunks + begin + i;
    vec total = load(p, k);
    for (int64_t n = 1; n < count; ++n) total = total + load(p + n * stride, k);
    if (acc) total = load(acc + begin + i, k) + total;
    store(y + begin + i, total, k);
  });
}

// The columns begin .. end - 1. Each is one chain of additions, wherever the columns are cut.
template <class T, class Sum>
void sum_rows(const row_sums<T, Sum>& c, int64_t begin, int64_t end) {
  const Sum *const before = c.acc_first ? c.acc : nullptr, *const after = c.acc_first ? nullptr : c.acc;
  const int32_t* const order = c.order;
  constexpr int64_t strip = 64, registers = strip / width;
  int64_t i = begin;
  for (; i + strip <= end; i += strip) {
    vec total[registers];
    for (int64_t j = 0; j < registers; ++j) total[j] = before ? load_all(before + i + j * width) : splat(0.0f);
    for (int64_t r = 0; r < c.rows; ++r) {
      const T* const row = c.x + (order ? int64_t{order[r]} : r) * c.stride + i;
      for (int64_t j = 0; j < registers; ++j) total[j] = total[j] + load_all(row + j * width);
    }
    for (int64_t j = 0; j < registers; ++j)
      store_all(c.y + i + j * width, after ? load_all(after + i + j * width) + total[j] : total[j]);
  }
  const T* const x = c.x;
  Sum* const y = c.y;
  const int64_t rows = c.rows, stride = c.stride;
  for_lanes(end - i, [=](int64_t n, auto k) SIMD_INLINE {
    vec total = before ? load(before + i + n, k) : splat(0.0f);
    for (int64_t r = 0; r < rows; ++r) total = total + load(x + (order ? int64_t{order[r]} : r) * stride + i + n, k);
    store(y + i + n, after ? load(after + i + n, k) + total : total, k);
  });
}

}  // namespace
}  // namespace cpu
