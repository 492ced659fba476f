// SPDX-License-Identifier: Apache-2.0
// Leases: a unit whose weight is kept in parts is made whole for its uses, ahead of them where the budget allows.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

// One pass over a block: the units that it reads.
using Uses = std::vector<std::vector<size_t>>;

// The most bytes that any `ahead` + 1 uses in a row need together.
uint64_t lease_bytes(const Uses& uses, const std::vector<uint64_t>& bytes, int64_t ahead);

class Leases {
 public:
  // Of one segment, whose uses come in the given order. `fill` makes a unit whole at the view it returns. At most
  // `budget` bytes are leased at a time; 0: as many as `ahead` needs.
  Leases(Emitter& emitter, Uses uses, std::vector<uint64_t> bytes, int64_t ahead, uint64_t budget,
         std::function<View(size_t unit)> fill);
  // Leases what use k needs, then what the next ones do as far as there is room.
  void before(size_t k);
  const View& whole(size_t unit) const { return live_.at(unit); }

 private:
  bool make_room(size_t unit, size_t from, size_t to);
  size_t next_use(size_t unit, size_t from) const;
  Emitter& emitter_;
  Uses uses_;
  std::vector<uint64_t> bytes_;  // per unit
  int64_t ahead_;
  uint64_t budget_, leased_ = 0;
  std::function<View(size_t)> fill_;
  std::map<size_t, View> live_;
};

}  // namespace eng
