// SPDX-License-Identifier: Apache-2.0
// The rank that has summed a range of the gradient updates that range, and the new weights are gathered. Nobody needs
// the other ranges of the sum: to keep them, as the name ZeRO 1 says, would take memory for nothing. So this is
// zero2, the same program under the name that people look for, whatever [train] reduce says.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION("zero1",
                                 "masters, optimizer state and summed gradients in parts; the same program as zero2"))

const zero::Strategy zero::strategy = {"zero1", eng_description,
                                       role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD)};
