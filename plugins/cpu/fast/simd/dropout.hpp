// SPDX-License-Identifier: Apache-2.0
// Dropout. Sixteen Philox blocks are computed at once; they give the random words of 64 neighbouring elements
// (engine/ops.h has the numbering).
#pragma once

#include "../../../common/simd/random.hpp"
#include "table.hpp"

namespace cpu {
namespace {

// keep[j] = 1 or 0 for element 64 * group + j of a sequence.
SIMD_INLINE inline void keep_group(const dropout_mask& d, uint32_t sequence, uint32_t group, float* keep) {
  for (uint32_t first = 0; first < 16; first += uint32_t(width)) {
    words c0 = all(group * 16 + first) + count_up(), c1 = all(sequence), c2 = all(d.step), c3 = all(d.stream);
    philox(c0, c1, c2, c3, d.seed);
    const words out[4] = {c0, c1, c2, c3};
    for (int k = 0; k < 4; ++k) store_all(keep + 16 * k + first, one_from(out[k], all(d.threshold)));
  }
}

// Groups of 64 elements, numbered through all sequences.
template <class T>
void dropout(const dropout_mask& d, const T* x_all, T* y_all, int64_t begin, int64_t end) {
  const int64_t groups = (d.n + 63) / 64;
  const vec scale = splat(d.scale);
  for (int64_t k = begin; k < end; ++k) {
    const int64_t row = k / groups, group = k % groups, left = d.n - 64 * group;
    float keep[64];
    keep_group(d, d.sequence + uint32_t(row), uint32_t(group), keep);
    const float* const kept = keep;
    const T* const x = x_all + row * d.n + 64 * group;
    T* const y = y_all + row * d.n + 64 * group;
    for_lanes(left < 64 ? left : 64, [=](int64_t i, auto lanes) SIMD_INLINE {
      store(y + i, if_positive(load(kept + i, lanes), load(x + i, lanes) * scale, splat(0.0f)), lanes);
    });
  }
}

}  // namespace
}  // namespace cpu
