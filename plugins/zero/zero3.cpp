// SPDX-License-Identifier: Apache-2.0
// Weights are gathered for each use and dropped after it. The update writes the part that is kept.
#include "strategy.hpp"

ENG_DESCRIPTION(
    ZERO_DESCRIPTION("zero3", "each rank keeps a part of everything, weights too; weights are gathered for each use"))

const zero::Strategy zero::strategy = {
    "zero3", eng_description,
    role(ENG_ROLE_WEIGHT) | role(ENG_ROLE_MASTER) | role(ENG_ROLE_STATE) | role(ENG_ROLE_GRAD)};
