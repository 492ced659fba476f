// SPDX-License-Identifier: Apache-2.0
// Assigns every buffer its offset in its arena.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

constexpr uint64_t alignment = 256;  // bytes
constexpr uint64_t page = 4096;      // of persistent buffers, and of those that are copied from or to storage

// Each arena separately: persistent buffers come first, at the same place in all programs; the transients of all
// programs use the same bytes after them. Two transients of a program share bytes only if every use of one completes
// before every use of the other by queue order and waits (list order alone would race). A value that enters a repeated
// segment shares bytes with nothing in it. Scratch is placed last, into gaps where it fits.
void place_buffers(Plan& plan);

}  // namespace eng
