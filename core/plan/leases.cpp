// SPDX-License-Identifier: Apache-2.0
#include "core/plan/leases.hpp"

#include <algorithm>

#include "engine/policy.h"

namespace eng {

void Leases::allow(int32_t role, uint32_t place, const Budget& budget) {
  table(role, place).budget = budget;
}

View Leases::acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc, uint32_t place) {
  Table& t = table(lease.role, place);
  const uint64_t n = bytes(desc);
  while (!t.left.empty() &&
         (t.turn - t.left.front().turn >= t.budget.turns || t.held + t.released + n > t.budget.bytes)) {
    emitter_.after_users(t.left.front().view);
    t.released -= t.left.front().bytes;
    t.left.pop_front();
  }
  t.held += n;
  const View view = emitter_.transient(name, line, desc, place);
  held_[lease] = {view, place};
  return view;
}

void Leases::release(const Lease& lease) {
  const auto [view, place] = held_.at(lease);
  Table& t = table(lease.role, place);
  const uint64_t n = bytes(view.desc);
  t.held -= n, t.released += n;
  t.left.push_back({view, n, t.turn});
  held_.erase(lease);
}

View Leases::find(const Lease& lease) const {
  const auto it = held_.find(lease);
  return it == held_.end() ? View{} : it->second.first;
}

bool Leases::fits(int32_t role, uint64_t bytes, uint32_t place) {
  const Table& t = table(role, place);
  return t.held + bytes <= t.budget.bytes;
}

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

size_t Prefetch::next_use(size_t unit, size_t from) const {
  for (; from < uses_.size(); ++from)
    if (std::count(uses_[from].begin(), uses_[from].end(), unit)) break;
  return from;
}

// Ends the leases that are used farthest in the future, but none that uses [from, to] need.
bool Prefetch::make_room(size_t unit, size_t from, size_t to) {
  const std::set<size_t> needed = needs(uses_, from, to);
  while (!leases_.fits(ENG_ROLE_WEIGHT, bytes_[unit])) {
    auto farthest = live_.end();
    for (auto it = live_.begin(); it != live_.end(); ++it)
      if (!needed.count(*it) && (farthest == live_.end() || next_use(*it, from) > next_use(*farthest, from)))
        farthest = it;
    if (farthest == live_.end()) return false;
    leases_.release({ENG_ROLE_WEIGHT, *farthest});
    live_.erase(farthest);
  }
  return true;
}

void Prefetch::before(size_t k) {
  for (size_t j = k; j <= k + static_cast<size_t>(ahead_) && j < uses_.size(); ++j)
    for (size_t u : uses_[j]) {
      if (live_.count(u)) continue;
      // The budget was checked to hold any one use.
      if (!make_room(u, k, j) && j > k) return;
      live_.insert(u);
      fill_(u);
    }
}

}  // namespace eng
