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

// The columns begin .. end - 1. With acc first, each is one chain of additions. Otherwise runs of 64 rows are added up,
// and then their sums: one chain over all tokens of a batch would lose digits. The bits are the same wherever the
// columns are cut.
template <class T, class Sum>
void sum_rows(const row_sums<T, Sum>& c, int64_t begin, int64_t end) {
  const bool chain = c.acc_first;
  const int64_t rows = c.rows, stride = c.stride, run = chain && rows > 0 ? rows : 64;
  const Sum *const before = chain ? c.acc : nullptr, *const after = chain ? nullptr : c.acc;
  const T* const x = c.x;
  const int32_t* const order = c.order;
  Sum* const y = c.y;
  const auto row = [=](int64_t r) SIMD_INLINE { return x + (order ? int64_t{order[r]} : r) * stride; };
  constexpr int64_t strip = 64, registers = strip / width;
  int64_t i = begin;
  for (; i + strip <= end; i += strip) {
    vec total[registers], part[registers];
    for (int64_t j = 0; j < registers; ++j) part[j] = before ? load_all(before + i + j * width) : splat(0.0f);
    for (int64_t first = 0; first == 0 || first < rows; first += run) {
      for (int64_t r = first; r < rows && r < first + run; ++r)
        for (int64_t j = 0; j < registers; ++j) part[j] = part[j] + load_all(row(r) + i + j * width);
      for (int64_t j = 0; j < registers; ++j) total[j] = first == 0 ? part[j] : total[j] + part[j];
      for (int64_t j = 0; j < registers; ++j) part[j] = splat(0.0f);
    }
    for (int64_t j = 0; j < registers; ++j)
      store_all(y + i + j * width, after ? load_all(after + i + j * width) + total[j] : total[j]);
  }
  for_lanes(end - i, [=](int64_t n, auto k) SIMD_INLINE {
    vec total = splat(0.0f), part = before ? load(before + i + n, k) : splat(0.0f);
    for (int64_t first = 0; first == 0 || first < rows; first += run) {
      for (int64_t r = first; r < rows && r < first + run; ++r) part = part + load(row(r) + i + n, k);
      total = first == 0 ? part : total + part, part = splat(0.0f);
    }
    store(y + i + n, after ? load(after + i + n, k) + total : total, k);
  });
}

}  // namespace
}  // namespace cpu
