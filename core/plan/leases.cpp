// SPDX-License-Identifier: Apache-2.0
#include "core/plan/leases.hpp"

#include <algorithm>
#include <set>

namespace eng {
namespace {

// What uses [from, to] need.
std::set<size_t> needs(const Uses& uses, size_t from, size_t to) {
  std::set<size_t> out;
  for (size_t k = from; k <= to && k < uses.size(); ++k) out.insert(uses[k].begin(), uses[k].end());
  return out;
}

}  // namespace

uint64_t lease_bytes(const Uses& uses, const std::vector<uint64_t>& bytes, int64_t ahead) {
  uint64_t most = 0;
  for (size_t k = 0; k < uses.size(); ++k) {
    uint64_t sum = 0;
    for (size_t u : needs(uses, k, k + static_cast<size_t>(ahead))) sum += bytes[u];
    most = std::max(most, sum);
  }
  return most;
}

Leases::Leases(Emitter& emitter, Uses uses, std::vector<uint64_t> bytes, int64_t ahead, uint64_t budget,
               std::function<View(size_t unit)> fill)
    : emitter_(emitter),
      uses_(std::move(uses)),
      bytes_(std::move(bytes)),
      ahead_(ahead),
      budget_(budget ? budget : lease_bytes(uses_, bytes_, ahead)),
      fill_(std::move(fill)) {}

size_t Leases::next_use(size_t unit, size_t from) const {
  for (; from < uses_.size(); ++from)
    if (std::count(uses_[from].begin(), uses_[from].end(), unit)) break;
  return from;
}

// Ends the leases that are used farthest in the future, but none that uses [from, to] need.
bool Leases::make_room(size_t unit, size_t from, size_t to) {
  const std::set<size_t> needed = needs(uses_, from, to);
  while (leased_ + bytes_[unit] > budget_) {
    auto farthest = live_.end();
    for (auto it = live_.begin(); it != live_.end(); ++it)
      if (!needed.count(it->first) &&
          (farthest == live_.end() || next_use(it->first, from) > next_use(farthest->first, from)))
        farthest = it;
    if (farthest == live_.end()) return false;
    // Who fills the room waits for all who used what was there.
    emitter_.after_users(farthest->second);
    leased_ -= bytes_[farthest->first];
    live_.erase(farthest);
  }
  return true;
}

void Leases::before(size_t k) {
  for (size_t j = k; j <= k + static_cast<size_t>(ahead_) && j < uses_.size(); ++j)
    for (size_t u : uses_[j]) {
      if (live_.count(u)) continue;
      // The budget was checked to hold any one use.
      if (!make_room(u, k, j) && j > k) return;
      leased_ += bytes_[u];
      live_[u] = fill_(u);
    }
}

}  // namespace eng
