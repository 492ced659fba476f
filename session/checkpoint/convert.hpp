// SPDX-License-Identifier: Apache-2.0
// Conversion between the element types of stored tensors.
#pragma once

#include "core/tensor/dtype.hpp"

namespace eng {

// Converts `count` elements between f32, bf16 and f16, rounding to nearest even; equal types are copied. Throws
// Error(Exit::bug) for other pairs of types.
void convert(int32_t from, const void* in, int32_t to, void* out, uint64_t count);

}  // namespace eng
