// SPDX-License-Identifier: Apache-2.0
// The tables of the strategies. They differ in the roles of which a rank keeps a part, and in the size of the parts.
//
//            WEIGHT   MASTER   STATE    GRAD
//   none     whole    whole    whole    1/W      (gathered for the update)
//   zero1    whole    1/W      1/W      1/W
//   zero2    whole    1/W      1/W      1/W
//   zero3    1/W      1/W      1/W      1/W
//   hpz      1/N      1/W      1/W      1/W      (Wang et al. 2023, ZeRO++, arXiv 2306.10209)
//   mics     1/N      1/N      1/N      1/N      (Zhang et al. 2022, MiCS, arXiv 2205.00119)
//
// With W ranks a part is 1/W of every piece, or 1/N within a group of N neighbours. PARTIAL and ACT are always whole,
// because every rank has its own sequences.
#pragma once

#include "engine/plugin.h"
#include "engine/policy.h"

namespace zero {

// The strategy with this name; nullptr: there is none.
const eng_axis* find(const char* name);

}  // namespace zero
