// SPDX-License-Identifier: Apache-2.0
// Leases: temporary memory for a piece of a state, within a budget.
#pragma once

#include <deque>
#include <set>

#include "core/plan/emitter.hpp"

namespace eng {

// The key of a lease.
struct Lease {
  int32_t role = 0;  // ENG_ROLE_*
  size_t unit = 0;
  uint32_t piece = whole_unit;
  static constexpr uint32_t whole_unit = UINT32_MAX;
  auto operator<=>(const Lease&) const = default;
};

// How many bytes of one role may be at a place at a time. Released bytes count until an action waits for their users.
struct Budget {
  uint64_t bytes = UINT64_MAX;
  size_t turns = SIZE_MAX;  // an acquisition waits for the users of everything released this many turns ago
};

// All leases of one segment. They end with it. The table decides which action waits for which, so that layout can reuse
// the memory; it places nothing.
class Leases {
 public:
  explicit Leases(Emitter& emitter) : emitter_(emitter) {}
  void allow(int32_t role, uint32_t place, const Budget& budget);
  // Makes a transient for a lease that is not held yet. If the budget is used up, the next action waits for the users
  // of released leases, oldest first.
  View acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc, uint32_t place = 0);
  // Ends a lease: no later action uses it.
  void release(const Lease& lease);
  // Ends a turn of this role.
  void turn(int32_t role, uint32_t place = 0) { ++table(role, place).turn; }
  // The view, or an absent one.
  View find(const Lease& lease) const;
  // True if `bytes` more can be acquired without a release.
  bool fits(int32_t role, uint64_t bytes, uint32_t place = 0);

 private:
  struct Released {
    View view;
    uint64_t bytes;
    size_t turn;
  };
  struct Table {
    Budget budget;
    uint64_t held = 0, released = 0;  // bytes
    std::deque<Released> left;        // released, but no action has waited for their users
    size_t turn = 0;
  };
  Table& table(int32_t role, uint32_t place) { return tables_[{role, place}]; }
  Emitter& emitter_;
  std::map<std::pair<int32_t, uint32_t>, Table> tables_;
  std::map<Lease, std::pair<View, uint32_t>> held_;  // with their place
};

// One pass over a block: the units that it reads.
using Uses = std::vector<std::vector<size_t>>;

// The most bytes that any `ahead` + 1 uses in a row need together.
uint64_t lease_bytes(const Uses& uses, const std::vector<uint64_t>& bytes, int64_t ahead);

// Leases the weights of the passes of a segment, ahead of their uses where the budget allows.
class Prefetch {
 public:
  // `bytes`: per unit. `fill` acquires a unit's lease and makes it whole.
  Prefetch(Leases& leases, Uses uses, std::vector<uint64_t> bytes, int64_t ahead, std::function<void(size_t unit)> fill)
      : leases_(leases), uses_(std::move(uses)), bytes_(std::move(bytes)), ahead_(ahead), fill_(std::move(fill)) {}
  // Leases what pass k needs, then what the next passes need as far as the budget allows.
  void before(size_t k);

 private:
  bool make_room(size_t unit, size_t from, size_t to);
  size_t next_use(size_t unit, size_t from) const;
  Leases& leases_;
  Uses uses_;
  std::vector<uint64_t> bytes_;
  int64_t ahead_;
  std::function<void(size_t)> fill_;
  std::set<size_t> live_;
};

}  // namespace eng
