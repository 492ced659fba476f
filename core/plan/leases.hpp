// SPDX-License-Identifier: Apache-2.0
// Leases: memory that a piece of a state has for a while, within a budget.
#pragma once

#include <deque>
#include <set>

#include "core/plan/emitter.hpp"

namespace eng {

// What has memory for a while.
struct Lease {
  int32_t role = 0;  // ENG_ROLE_*
  size_t unit = 0;
  uint32_t piece = whole_unit;
  static constexpr uint32_t whole_unit = UINT32_MAX;
  auto operator<=>(const Lease&) const = default;
};

// How much of one role may be at a place at a time. What is released counts until its users have been waited for.
struct Budget {
  uint64_t bytes = UINT64_MAX;
  size_t turns = SIZE_MAX;  // what was released this many turns ago is out of use before something is acquired
};

// All leases of one segment; at its end they are gone. Nothing is placed here: the table says who waits for whom, so
// that layout can reuse the memory.
class Leases {
 public:
  explicit Leases(Emitter& emitter) : emitter_(emitter) {}
  void allow(int32_t role, uint32_t place, const Budget& budget);
  // A transient for what is not held yet. Where the budget is used up, the next action waits for the users of what was
  // released, oldest first.
  View acquire(const Lease& lease, const std::string& name, Line line, const eng_desc& desc, uint32_t place = 0);
  // Its users so far are its last ones.
  void release(const Lease& lease);
  // Ends a turn of this role.
  void turn(int32_t role, uint32_t place = 0) { ++table(role, place).turn; }
  // The view, or an absent one.
  View find(const Lease& lease) const;
  // So many bytes more can be acquired without a release.
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
    std::deque<Released> left;        // whose users nobody has waited for
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
  // What pass k needs, then what the next ones do as far as there is room.
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
