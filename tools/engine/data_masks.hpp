// SPDX-License-Identifier: Apache-2.0
// Samples of which not every token trains, for people to look at.
#pragma once

#include "session/data/data.hpp"
#include "session/data/tokenizer.hpp"

namespace eng {

// Prints the share of the labels and the first samples, if some tokens of these are no labels; true if so. What trains
// is green on a terminal, and stands between {+ and +} elsewhere.
bool print_masks(const Data& data, const Tokenizer* tokenizer);

}  // namespace eng
