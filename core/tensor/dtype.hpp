// SPDX-License-Identifier: Apache-2.0
// Element types and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base.h"
#include "engine/dlpack.h"
#include "engine/tensor.h"

namespace eng {

// Defined for ENG_F32 .. ENG_U8. All but is_float and wide throw Error(Exit::bug) for other values.
uint64_t dtype_size(int32_t dtype);      // bytes of one element
DLDataType dtype_dlpack(int32_t dtype);  // one lane
bool is_float(int32_t dtype);            // false for other values
// Sums, statistics and losses of values of a floating type: f32, or f64 if compute is f64 (gradient checks).
constexpr int32_t wide(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}
// True if n values of any type are all finite.
bool all_finite(const void* values, int32_t dtype, uint64_t n);

// Sizes of a dense tensor. Throw Error(Exit::bug) for an invalid shape, or a result of more than 63 bits.
uint64_t element_count(const eng_desc& desc);
uint64_t byte_count(const eng_desc& desc);
// "f32 (8, 256, 512)", "i32 ()".
std::string describe(const eng_desc& desc);
bool same(const eng_desc& a, const eng_desc& b);

}  // namespace eng
