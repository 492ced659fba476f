// SPDX-License-Identifier: Apache-2.0
#include "session/data/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace eng {
namespace {

__extension__ typedef unsigned __int128 Wide;

// The number of places, of the first n, that belong to a source with `part` of `whole`: n part / whole, rounded.
uint64_t turns_before(uint64_t n, uint64_t part, uint64_t whole) {
  return static_cast<uint64_t>((2 * Wide{n} * part + whole) / (2 * Wide{whole}));
}

}  // namespace

Mixture::Mixture(std::vector<uint64_t> shares, uint32_t group)
    : shares_(std::move(shares)), total_(std::accumulate(shares_.begin(), shares_.end(), uint64_t{0})), group_(group) {}

// Each source takes its turns of the places that those before it leave.
Mixture::Place Mixture::at(uint64_t position) const {
  uint64_t place = position / group_, whole = total_;
  for (std::size_t k = 0; k < shares_.size(); ++k) {
    if (!shares_[k]) continue;
    const uint64_t before = turns_before(place, shares_[k], whole);
    if (turns_before(place + 1, shares_[k], whole) > before) return {k, before * group_ + position % group_};
    place -= before, whole -= shares_[k];
  }
  throw Error(Exit::bug, "a mixture without sources was read");
}

std::vector<uint64_t> mixture_shares(const std::vector<DataSource>& sources, const std::vector<uint64_t>& sizes,
                                     std::optional<double> temperature) {
  std::vector<uint64_t> out(sources.size(), 0);
  if (std::all_of(sizes.begin(), sizes.end(), [](uint64_t n) { return n == 0; })) return out;  // only to evaluate
  const bool by_epochs = std::any_of(sources.begin(), sources.end(), [](const auto&s) { return s.epochs.has_value(); }),
             by_weight = std::any_of(sources.begin(), sources.end(), [](const auto&s) { return s.weight.has_value(); });
  std::vector<double> weights(sources.size(), 0.0);
  double all = 0;       // of the weights
  uint64_t groups = 0;  // of the sources that are read
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const auto size = static_cast<double>(sizes[k]);
    weights[k] = by_epochs   ? sources[k].epochs.value_or(1.0) * size
                 : by_weight ? sources[k].weight.value_or(1.0)
                             : std::pow(size, 1 / temperature.value_or(1.0));
    const bool wanted = by_epochs ? sources[k].epochs.value_or(1.0) > 0 : !by_weight || weights[k] > 0;
    if (wanted && !sizes[k])
      throw Error(Exit::data, fmt::format("{} has nothing to train on", sources[k].where()),
                  fmt::format("lower its `validation`, or give it {} = 0", by_epochs ? "epochs" : "weight"));
    if (wanted) groups += sizes[k];
    all += weights[k];
  }
  const double scale = by_epochs ? 1 : static_cast<double>(groups) / all;
  double total = 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    if (weights[k] <= 0) continue;
    const double share = std::max(1.0, std::round(weights[k] * scale));
    if ((total += share) > 0x1p56)
      throw Error(Exit::data, "an epoch of [[data.sources]] has more than 2^56 samples", "lower `epochs`");
    out[k] = static_cast<uint64_t>(share);
  }
  return out;
}

}  // namespace eng
