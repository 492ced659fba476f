// SPDX-License-Identifier: Apache-2.0
// The way between two homes: moves that change one axis each.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// The three axes of a home.
enum class Axis : uint8_t { place, part, dtype };

// Where a value is on all three. Two values with equal ones differ in nothing but their address.
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

// Takes a value from one home to another; empty where they are the same one. As few bytes as possible move between
// ranks and places: where the parts differ, the value goes to the device, gets narrower, moves between the ranks, then
// to its place, and gets wider last. Else it gets narrower, moves, and gets wider.
std::vector<Move> route(const Where& from, const Where& to);
// The same for a sum over ranks, which is made in the type `dtype`. It has a move between ranks even where the parts
// are equal; with one rank, which has nobody to sum with, it has none.
std::vector<Move> route_of_sum(const Where& from, const Where& to, int32_t dtype, bool one_rank = false);

}  // namespace eng
