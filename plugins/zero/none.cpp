// SPDX-License-Identifier: Apache-2.0
// Replicated data parallel: every rank keeps everything and does the whole update.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION("none", "everything whole on every rank: replicated data parallel"))

const zero::Strategy zero::strategy = {"none", eng_description, 0};
