// SPDX-License-Identifier: Apache-2.0
// The transient buffers of a plan that are in use at a time, actions taken in list order.
#pragma once

#include <optional>

#include "core/plan/plan.hpp"

namespace eng {

// The transient buffers at the action where most of their bytes are in use.
struct Fullest {
  uint64_t bytes = 0;
  const Program* program = nullptr;
  uint32_t label = 0;    // index into Plan::labels
  std::vector<Id> live;  // largest first
};
Fullest fullest(const Plan& plan);

// The most bytes of one kind of transients that are in use at a time in program "train". In one arena, or, without its
// index, in all of them.
uint64_t most_live(const Plan& plan, Line line, std::optional<uint32_t> arena = {});

// The most bytes of all transients in each arena, while one segment of "train" runs; each rounded as a layout does. 0
// without such a segment.
std::vector<uint64_t> live_in(const Plan& plan, const std::string& segment);

// For a plan whose buffers have no place yet: sets the sizes of its arenas to what no layout can go below.
void bound_arenas(Plan& plan);

}  // namespace eng
