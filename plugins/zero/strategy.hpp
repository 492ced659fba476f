// SPDX-License-Identifier: Apache-2.0
// The tables of the four strategies. They differ only in the roles of which a rank keeps a part.
//
//            WEIGHT  MASTER  STATE  GRAD
//   none     whole   whole   whole  part   (gathered for the update)
//   zero1    whole   part    part   part
//   zero2    whole   part    part   part
//   zero3    part    part    part   part
//
// With W ranks a part is 1/W of every piece; rank r keeps the r-th. PARTIAL and ACT are always whole, because every
// rank has its own sequences.
#pragma once

#include "engine/plugin.h"
#include "engine/policy.h"

namespace zero {

// The strategy with this name; nullptr: there is none.
const eng_axis* find(const char* name);

}  // namespace zero
