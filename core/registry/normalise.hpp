// SPDX-License-Identifier: Apache-2.0
// Tables that crossed the ABI, copied into our own zeroed ones (the growth rules of engine/base.h).
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// Copies min(size, the size `theirs` states) bytes of `theirs` into `out` and zeroes the rest. `first_size` is
// the size of version 1.0; from byte 8 to there are pointers, none of them may be NULL.
// Throws Error(Exit::environment), whose text begins with `what`.
void copy_struct(const void* theirs, void* out, uint32_t size, uint32_t first_size, const std::string& what);

}  // namespace eng
