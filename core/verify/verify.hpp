// SPDX-License-Identifier: Apache-2.0
// Checks the addresses and the order of a laid-out plan, independently of the passes that made it.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// Returns at most `limit` problems:
// - a wait for a later action;
// - a read of bytes that nothing has written yet, or that another buffer has overwritten;
// - two conflicting accesses, or two collectives of one group, that nothing orders;
// - an action whose outputs or scratch overlap each other or its inputs, unless its op works in place;
// - a buffer that overlaps a persistent one; a view outside its buffer or arena.
std::vector<std::string> problems(const Plan& plan, size_t limit = 20);

// Throws Error(Exit::bug) listing the problems.
void verify(const Plan& plan);

}  // namespace eng
