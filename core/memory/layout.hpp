// SPDX-License-Identifier: Apache-2.0
// Assigns every buffer its offset in its arena.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

constexpr uint64_t alignment = 256;  // bytes; persistent buffers start on multiples of 4,096

// In each arena by itself: persistent buffers are laid out once for all programs; behind them each program overlays the
// same bytes. Two transient buffers of a program share bytes only if every use of one happens before every use of the
// other; list order would race between queues. What comes into a repeated segment shares with nothing in it.
// Scratch is placed last, into the gaps where it fits.
void place_buffers(Plan& plan);

}  // namespace eng
