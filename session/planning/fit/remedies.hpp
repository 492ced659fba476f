// SPDX-License-Identifier: Apache-2.0
// The least changes that would help if no setting fits.
#pragma once

#include "session/planning/fit/search.hpp"

namespace eng {

// Adds to `fit.remedies`: more ranks, an optimizer with smaller states, shorter sequences, fewer layers. Of each the
// least change with which something fits in the configuration's number format; where another format needs a
// smaller change, that too. With the change come the fewest other edits; of as few, those of the fastest step.
void find_remedies(const Config& config, const Registry& registry, const World& world, Trial& trial, const Grid& grid,
                   Fit& fit);

// Adds to `fit.remedies`: the least [device] attention_workspace by default, where the configuration itself does not
// fit and fits with that.
void find_smaller_workspace(const Config& config, const World& world, Trial& trial, Fit& fit);

}  // namespace eng
