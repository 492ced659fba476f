// SPDX-License-Identifier: Apache-2.0
// From logits to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace eng {

struct Sampling {
  double temperature = 0.8;  // 0: always take the most likely token
  int64_t top_k = 0;         // only this many of the most likely tokens; 0: all
  double top_p = 0.95;       // only the most likely tokens with this total probability
  uint64_t seed = 1;
};

class Sampler {
 public:
  explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}
  // A pure function of the logits, the settings and `position`. Of equal logits, the smaller id counts as more likely.
  int32_t next(std::span<const float> logits, uint64_t position);

 private:
  Sampling sampling_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

// In (0, 1): number `index` of stream `seed`.
double uniform(uint64_t seed, uint64_t index);

}  // namespace eng
