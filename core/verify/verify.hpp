// SPDX-License-Identifier: Apache-2.0
// Checks a laid-out plan by address, independently of the passes that made it.
#pragma once

#include "core/plan/plan.hpp"

namespace eng {

// Every problem found: a wait that points forward, a read of bytes that no action of the program wrote before, or
// that another buffer took since, in whichever segment; two conflicting accesses that nothing orders, an action whose
// outputs or scratch lie on what else it uses, unless its op works in place, a buffer that lies on a persistent one, a
// view outside its buffer or arena; two collectives of one group in no order. At most `limit`.
std::vector<std::string> problems(const Plan& plan, size_t limit = 20);

// Throws Error(Exit::bug) listing the problems.
void verify(const Plan& plan);

}  // namespace eng
