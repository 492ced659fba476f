// SPDX-License-Identifier: Apache-2.0
#include "core/plan/prefetch.hpp"

#include <algorithm>

#include "core/tensor/dtype.hpp"
#include "engine/policy.h"

namespace eng {

Demand::Demand(const Model& model, const Homes& homes, const std::vector<BlockEmitter::Reads>& passes) {
  for (size_t u = 0; u < homes.units(); ++u) bytes_.push_back(homes.unit(u).count * dtype_size(homes.computed(u)));
  uses_.resize(homes.units());
  const auto fresh = [&](size_t u) { return homes.unit(u).count * dtype_size(homes.made(u)); };
  std::vector<char> made(homes.units(), 0);
  uint64_t here = 0;
  for (const BlockEmitter::Reads& pass : passes) {
    auto& weights = weights_.emplace_back();
    for (uint32_t p : pass.params)
      if (const size_t u = homes.unit_of(p); homes.leased(u) && weights.insert(u).second)
        uses_[u].push_back(weights_.size() - 1);
    Gradients& g = gradients_.emplace_back();
    g.backward = pass.backward;
    if (pass.backward) {
      for (uint32_t p : model.blocks[pass.block].params) {
        const size_t u = homes.unit_of(p);
        if (!std::exchange(made[u], 1) && !homes.frozen(u)) here += fresh(u);
      }
      for (size_t u : homes.units_of(pass.block))
        if (!homes.frozen(u)) g.released += fresh(u), made[u] = 0;
    }
    g.here = std::exchange(here, here - g.released);
  }
}

uint64_t Demand::weight_bytes(size_t from, size_t to) const {
  std::set<size_t> all;
  for (size_t k = from; k <= to && k < passes(); ++k) all.insert(weights_[k].begin(), weights_[k].end());
  uint64_t sum = 0;
  for (size_t u : all) sum += bytes_[u];
  return sum;
}

uint64_t Demand::most_weights(int64_t ahead) const {
  uint64_t most = 0;
  for (size_t k = 0; k < passes(); ++k) most = std::max(most, weight_bytes(k, k + static_cast<size_t>(ahead)));
  return most;
}

std::vector<uint64_t> Demand::gradients(size_t turns) const {
  std::vector<uint64_t> out, released;  // by the blocks so far
  for (const Gradients& g : gradients_) {
    uint64_t& sum = out.emplace_back(g.here);
    for (size_t k = 1; k < turns && k <= released.size(); ++k) sum += released[released.size() - k];
    if (g.backward) released.push_back(g.released);
  }
  return out;
}

bool Demand::fits(uint64_t limit, size_t turns) const {
  const std::vector<uint64_t> gradients = this->gradients(turns);
  for (size_t k = 0; k < passes(); ++k)
    if (weight_bytes(k, k) + gradients[k] > limit) return false;
  return true;
}

size_t Demand::next_use(size_t unit, size_t from) const {
  const auto next = std::lower_bound(uses_[unit].begin(), uses_[unit].end(), from);
  return next == uses_[unit].end() ? passes() : *next;
}

// Ends the leases that are used farthest in the future, but none that passes [from, to] need, until `bytes` more have
// room in all of these passes.
bool Prefetch::make_room(uint64_t bytes, size_t from, size_t to) {
  const auto begin = room_.begin() + static_cast<std::ptrdiff_t>(from);
  const uint64_t room = *std::min_element(begin, begin + static_cast<std::ptrdiff_t>(to - from + 1));
  while (held_ + bytes > room) {
    auto farthest = live_.end();
    for (auto it = live_.begin(); it != live_.end(); ++it)
      if (const size_t next = demand_.next_use(*it, from);
          next > to && (farthest == live_.end() || next > demand_.next_use(*farthest, from)))
        farthest = it;
    if (farthest == live_.end()) return false;
    leases_.release({ENG_ROLE_WEIGHT, *farthest});
    held_ -= demand_.bytes(*farthest);
    live_.erase(farthest);
  }
  return true;
}

void Prefetch::before(size_t k) {
  make_room(0, k, k);  // a pass may leave less room than the one before it
  for (size_t j = k; j <= k + static_cast<size_t>(ahead_) && j < demand_.passes(); ++j)
    for (size_t u : demand_.weights(j)) {
      if (live_.count(u)) continue;
      if (!make_room(demand_.bytes(u), k, j) && j > k) return;
      live_.insert(u), held_ += demand_.bytes(u);
      fill_(u);
    }
}

}  // namespace eng
