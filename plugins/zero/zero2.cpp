// SPDX-License-Identifier: Apache-2.0
// The rank that has summed a range of the gradient updates that range, and the new weights are gathered.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION(
    "zero2", "each rank keeps a part of the masters, optimizer state and summed gradients; zero1 is the same program"))

const zero::Strategy zero::strategy = {"zero2", eng_description,
                                       role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD)};
