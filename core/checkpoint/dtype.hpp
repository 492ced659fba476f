// SPDX-License-Identifier: Apache-2.0
// Element types as checkpoint files spell them.
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// "F32" for ENG_F32. Throws Error(Exit::bug) for a number that is no element type.
const char* dtype_name(int32_t dtype);
// 0 for a spelling this engine does not read.
int32_t dtype_from_name(const std::string& name);
// Bytes of one element; throws as dtype_name.
uint64_t dtype_bytes(int32_t dtype);

}  // namespace eng
