// SPDX-License-Identifier: Apache-2.0
// The ways in which ranks can divide a step: degrees of [parallel], strategies of [zero] and their groups.
#pragma once

#include <optional>
#include <set>

#include "core/trace/builder.hpp"
#include "session/planning/fit/edits.hpp"
#include "session/planning/fit/offers.hpp"

namespace eng {

struct Way {
  Offer strategy;
  Edits degrees = {};               // of [parallel]; none: as the configuration
  Edits edits = {};                 // these, and those of [zero]
  std::string effect = {};          // which numbers differ from those of the configuration; "": none
  int64_t rows = 1;                 // sequences of a step, of each rank that has its own: of equally many in all
  std::vector<int64_t> micro = {};  // sequences of a micro-batch, largest first: divisors of `rows`
  int64_t stages = 1, parts = 1;    // of its pipeline, and of the model on each stage
};

// The strategies of [zero], that of the configuration first.
Offers strategies_of(const Config& config, Registry& registry);
// The degree of a key of [parallel], with these edits.
int64_t degree_with(const Config& config, const Edits& degrees, const std::string& key);
// The degrees with one stage.
Edits without_stages(const Config& config, const Edits& degrees);
// The degrees with the next smaller `context`, as ways have them; none if sequences are whole.
std::optional<Edits> with_less_context(const Config& config, const Edits& degrees);
// The configuration's own way, then all others for `world`. Ranks that divide layers share a node, so that degrees
// are divisors of World::local_size; stages need not. Groups of a strategy are one node or some nodes, where there are
// more.
std::vector<Way> ways_of(const Config& config, const Offers& strategies, const World& world, bool lossy);

// The numbers of the ways, as the configuration has them; those with other degrees follow, what takes least of each
// first.
std::vector<size_t> by_memory(const std::vector<Way>& ways);
// Per way, the one without edits of these keys; itself if there is none.
std::vector<size_t> without(const std::vector<Way>& ways, const std::set<std::string>& keys);

}  // namespace eng
