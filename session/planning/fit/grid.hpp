// SPDX-License-Identifier: Apache-2.0
// The settings among which `engine plan --fit` looks for the fastest.
#pragma once

#include "session/cards/target.hpp"
#include "session/planning/fit/edits.hpp"
#include "session/planning/fit/offers.hpp"
#include "session/planning/fit/ways.hpp"

namespace eng {

// One setting of [recompute].
struct Keep {
  enum class Kind : uint8_t { given, none, budget, full, blocks, every } kind = Kind::given;
  double share = 1;    // budget: of what is kept without recomputing
  int64_t blocks = 0;  // blocks; every: each so many-th layer
};

// Keys of [offload] that get the tier.
struct Tiered {
  Offer tier;
  std::vector<const char*> keys;
};

struct Grid {
  // The first of each list is what the configuration says.
  Offers formats;
  std::vector<Way> ways;
  std::vector<Keep> keeps;
  Offers strategies;  // of [zero] that need no groups, with any number of ranks
  // States to put on a tier.
  std::vector<Tiered> offloads;
};
// `lossy`: also with options of strategies that change values which they move.
Grid grid_of(const Config& config, Registry& registry, const Target& target, const World& world, bool lossy = false);

// True if a setting of [recompute] is tried with a way. Bytes of all layers, and runs of layers, are none of a stage.
bool offered(const Way& way, const Keep& keep);

// A place in the grid, by index; `micro` is the number of sequences.
struct Point {
  size_t format = 0, way = 0, keep = 0;
  int64_t micro = 1;
  size_t offload = 0;
};
// The edits that lead to a point. `row_bytes`: what is kept of a sequence without recomputing.
Edits edits_of(const Config& config, const Grid& grid, const Point& point, uint64_t row_bytes);
// The edits for one group of ranks that divide layers, which has the whole model and two micro-batches: all the work of
// the stages of a pipeline, and no sums over other ranks.
Edits group_edits(const Config& config, const Grid& grid, const Point& point);
// The effect of a point's edits other than on memory and time: "the same numbers", or which numbers differ.
struct Effect {
  bool same_numbers = true;
  std::string text;
};
Effect effect_of(const Config& config, const Grid& grid, const Point& point);
// The edits for a setting of [recompute]; none for the given one, and for a budget, which depends on the micro-batch.
Edits keep_edits(const Config& config, const Keep& keep);
// The edits for one of the number formats, and their effect; none and "" for that of the configuration.
Edits format_edits(const Grid& grid, size_t format);
std::string format_effect(const Grid& grid, size_t format);

}  // namespace eng
