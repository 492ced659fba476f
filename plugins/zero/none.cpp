// SPDX-License-Identifier: Apache-2.0
// Replicated data parallel: every rank keeps everything and does the whole update. Reduced gradients alone are kept in
// parts until then: a micro-batch moves as much as with the other strategies, and the step one gather more.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION("none",
                                 "weights, masters and optimizer state whole on every rank: replicated data parallel"))

const zero::Strategy zero::strategy = {"none", eng_description, zero::role(ENG_ROLE_GRAD)};
