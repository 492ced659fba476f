// SPDX-License-Identifier: Apache-2.0
// Packed samples for tests.
#pragma once

#include "emulated.hpp"

namespace cuda_test {

struct Packed {
  Tensor segments, positions;  // (B, T)
};
// Documents of these lengths, a list for each sample. Only neighbours have different numbers.
inline Packed pack(const std::vector<Dims>& samples) {
  int64_t length = 0;
  for (const int64_t n : samples[0]) length += n;
  const Dims dims = {static_cast<int64_t>(samples.size()), length};
  Packed out{Tensor(ENG_I32, dims), Tensor(ENG_I32, dims)};
  int64_t at = 0;
  for (const Dims& documents : samples)
    for (size_t k = 0; k < documents.size(); ++k)
      for (int64_t t = 0; t < documents[k]; ++t, ++at) out.segments.put(at, k % 2 ? -3 : 7), out.positions.put(at, t);
  if (at != out.segments.size()) throw std::logic_error("samples of different lengths");
  return out;
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
