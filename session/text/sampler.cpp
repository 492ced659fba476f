// SPDX-License-Identifier: Apache-2.0
#include "session/text/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace eng {

// SplitMix64 (Steele, Lea, Flood 2014) as a function of a counter, twice: once for the seed, once for the index.
double uniform(uint64_t seed, uint64_t index) {
  auto mix = [](uint64_t x) {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  };
  return (static_cast<double>(mix(mix(seed) + index) >> 11) + 0.5) * 0x1p-53;
}

int32_t Sampler::next(std::span<const float> logits, uint64_t position) {
  if (sampling_.temperature == 0)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  auto at = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  auto likelier = [&](int32_t a, int32_t b) { return at(a) > at(b) || (at(a) == at(b) && a < b); };
  size_t n = order_.size();
  if (sampling_.top_k > 0) n = std::min(n, static_cast<size_t>(sampling_.top_k));
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(n), order_.end(), likelier);

  weights_.resize(n);
  const double top = at(order_[0]);
  for (size_t k = 0; k < n; ++k)
    weights_[k] = std::exp((static_cast<double>(at(order_[k])) - top) / sampling_.temperature);
  // The smallest set of tokens that reaches top_p, of those that top_k kept.
  const double wanted = sampling_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double all = 0;
  for (size_t k = 0; k < n; ++k)
    if ((all += weights_[k]) >= wanted) n = k + 1;
  double left = uniform(sampling_.seed, position) * all;
  for (size_t k = 0; k + 1 < n; ++k)
    if ((left -= weights_[k]) < 0) return order_[k];
  return order_[n - 1];
}

}  // namespace eng
