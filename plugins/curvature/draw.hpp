// SPDX-License-Identifier: Apache-2.0
// The random numbers of ops.hpp one by one.
#pragma once

#include <cstdint>

#include "../common/philox.hpp"
#include "gauss.hpp"

namespace curvature {

// An element with a word below it is in the sample; 2^32: all are.
CURVATURE_INLINE uint64_t sample_limit(double rate, double share) {
  const double all = rate * share;
  if (!(all > 0)) return 0;
  return all >= 1 ? uint64_t{1} << 32 : static_cast<uint64_t>(all * 0x1p32);
}

// Draws the random numbers of one parameter.
struct Drawing {
  uint64_t seed;
  uint32_t stream;

  common::PhiloxWords words(uint32_t purpose, uint32_t counter, uint64_t block) const {
    return common::philox4x32_10(block, counter | uint64_t{stream + (purpose << 28)} << 32, seed);
  }
  bool negative(uint64_t e, uint32_t counter) const {
    const uint64_t j = e % 1024 / 32;
    return words(1, counter, e / 1024 * 8 + j % 8)[j / 8] >> e % 32 & 1;
  }
  bool sampled(uint64_t e, uint64_t limit) const {
    return limit >> 32 || words(2, 0, e / 32 * 8 + e % 8)[e % 32 / 8] < static_cast<uint32_t>(limit);
  }
  double normal(uint64_t e, uint32_t counter) const {
    const common::PhiloxWords w = words(3, counter, e / 32 * 8 + e % 8);
    const Normals two = e % 32 < 16 ? normals_of(w[0], w[1]) : normals_of(w[2], w[3]);
    return e % 16 < 8 ? two.first : two.second;
  }
};

}  // namespace curvature
