// SPDX-License-Identifier: Apache-2.0
// Packed samples for tests.
#pragma once

#include "emulated.hpp"
#include "tests/kernels/documents.hpp"

namespace cuda_test {

struct Packed {
  Tensor segments, positions;  // (B, T)
};
inline Packed pack(const std::vector<Dims>& lengths) {
  const Documents documents{lengths};
  return {documents.segments(), documents.positions()};
}
// Documents of 1 token, of a few, and of more than a tile.
inline Packed pack_some(Random& random, int64_t batch, int64_t length) {
  std::vector<Dims> samples(static_cast<size_t>(batch));
  for (Dims& documents : samples)
    for (int64_t left = length; left > 0; left -= documents.back()) {
      const int64_t kind = pick(random, 0, 2), n = kind == 0 ? 1 : pick(random, 2, kind == 1 ? 9 : 90);
      documents.push_back(std::min(n, left));
    }
  return pack(samples);
}
inline Packed pack_one(int64_t batch, int64_t length) {
  return pack(std::vector<Dims>(static_cast<size_t>(batch), Dims{length}));
}

// One document in each sample: the same bits as by the op without segments, `plain`.
inline void check_as_plain(const Use& use, const Use& plain) {
  const Device::Outputs got = outputs(use), want = outputs(plain);
  for (size_t k = 0; k < want.size(); ++k) {
    INFO(use.op << ", output " << k);
    CHECK(got[k].same_bits(want[k]));
  }
}

}  // namespace cuda_test
