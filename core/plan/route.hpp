// SPDX-License-Identifier: Apache-2.0
// The way between two homes: moves that change one axis each.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// The three axes of a home.
enum class Axis : uint8_t { place, part, dtype };

// The position of a value on all three axes. Two values at equal positions differ only in their addresses.
struct Where {
  uint32_t place = 0;  // index into Plan::arenas; 0 is the device's own memory, where collectives run
  Id part = 0;         // of the plan's ranks; 0: the whole
  int32_t dtype = ENG_F32;
  bool operator==(const Where&) const = default;
};

// One step of a route, from where the step before it ended.
struct Move {
  Axis axis = Axis::place;
  Where to;
  bool operator==(const Move&) const = default;
};

// The moves from one home to another; empty if they are equal. As few bytes as possible move between ranks and places.
// The value becomes narrower where it is. If the parts differ, it goes to the device and moves between the ranks. Then
// it goes to its place, and becomes wider last. Nothing becomes narrower or wider in storage.
std::vector<Move> route(const Plan& plan, const Where& from, const Where& to);
// The moves of a sum over ranks. Its summands move in the type `dtype`; the sum is made in that type or in the one it
// goes to, whichever is wider. It moves between ranks even if the parts are equal. With one rank there is nothing to
// sum, so it does not.
std::vector<Move> route_of_sum(const Plan& plan, const Where& from, const Where& to, int32_t dtype,
                               bool one_rank = false);

}  // namespace eng
