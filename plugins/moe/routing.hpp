// SPDX-License-Identifier: Apache-2.0
// The choice of experts, and the order of the pairs of a token and an expert: the same for all devices of the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/types.hpp"

namespace moe {

// Writes the numbers of the k largest of n logits, the largest first, of equal ones the lower number. A NaN is taken
// only where nothing else is left.
template <class Number>
void choose(const Number* logits, int64_t n, int64_t k, int32_t* chosen) {
  const auto before = [&](int64_t a, int64_t b) {  // a > b
    return logits[a] > logits[b] || (logits[b] != logits[b] && logits[a] == logits[a]);
  };
  for (int64_t e = 0; e < n; ++e) {
    int64_t at = std::min(e, k);  // behind those that are as large
    while (at > 0 && before(e, chosen[at - 1])) --at;
    if (at >= k) continue;
    std::copy_backward(chosen + at, chosen + std::min(e, k - 1), chosen + std::min(e + 1, k));
    chosen[at] = static_cast<int32_t>(e);
  }
}

// order, place (pairs), offsets (n + 1) of the experts chosen by `pairs` pairs.
inline void sort_pairs(const int32_t* chosen, int64_t pairs, int64_t n, int32_t* order, int32_t* place,
                       int32_t* offsets) {
  std::fill(offsets, offsets + n + 1, 0);
  for (int64_t p = 0; p < pairs; ++p) ++offsets[chosen[p] + 1];
  for (int64_t e = 0; e < n; ++e) offsets[e + 1] += offsets[e];
  for (int64_t p = 0; p < pairs; ++p) {
    const int32_t row = offsets[chosen[p]]++;  // from here on the next row of its expert
    order[row] = static_cast<int32_t>(p), place[p] = row;
  }
  for (int64_t e = n; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

// The sizes of a call of route or of its gradient, whose input 0 is the logits (B, T, E).
struct RouteSizes {
  int64_t sequences, tokens, experts, k, all;  // all: tokens of all sequences
  bool normalise;
  explicit RouteSizes(const common::Call& c)
      : sequences(c.in[0].dims[0]),
        tokens(c.in[0].dims[1]),
        experts(c.in[0].dims[2]),
        k(c.integer("k")),
        all(sequences * tokens),
        normalise(c.integer("normalise") != 0) {}
};

// act of a call: 0 silu, 1 gelu, 2 gelu_tanh, 3 relu.
inline size_t activation_of(const common::Call& c) {
  const int64_t act = c.integer("act");
  if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
    throw common::Error{ENG_UNSUPPORTED, "act = " + std::to_string(act) +
                                             " is unknown; it must be 1 (silu), 2 (gelu), 3 (gelu_tanh) or 4 (relu)"};
  return static_cast<size_t>(act - ENG_ACT_SILU);
}

}  // namespace moe
