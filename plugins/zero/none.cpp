// SPDX-License-Identifier: Apache-2.0
// Replicated data parallel: every rank keeps everything and does the whole update. Only reduced gradients are kept in
// parts until the update. A micro-batch therefore moves as many bytes as with the other strategies, and a step needs
// one more gather.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION("none",
                                 "replicated data parallel: every rank has all weights, masters and optimizer state"))

const zero::Strategy zero::strategy = {"none", eng_description, zero::role(ENG_ROLE_GRAD)};
