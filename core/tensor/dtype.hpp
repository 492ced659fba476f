// SPDX-License-Identifier: Apache-2.0
// Element types: size, name for people, name in safetensors files, DLPack code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base.h"
#include "engine/dlpack.h"
#include "engine/tensor.h"

namespace eng {

// Of an ENG_F32 .. ENG_U8 value; all throw Error(Exit::bug) for anything else.
uint64_t dtype_size(int32_t dtype);            // bytes of one element
const char* dtype_name(int32_t dtype);         // "f32", "bf16", "i64", ...
const char* dtype_safetensors(int32_t dtype);  // "F32", "BF16", "I64", ...
DLDataType dtype_dlpack(int32_t dtype);        // one lane

// The inverses; nullopt for a type the engine does not have.
std::optional<int32_t> dtype_from_safetensors(const std::string& name);
std::optional<int32_t> dtype_from_dlpack(const DLDataType& type);

// Number of elements, and bytes, of a dense tensor. Throw Error(Exit::bug) if a dimension is negative, ndim is
// above ENG_MAX_DIMS, or the product does not fit into 63 bits.
uint64_t element_count(const eng_desc& desc);
uint64_t byte_count(const eng_desc& desc);
// "f32 (8, 256, 512)", "i32 ()".
std::string describe(const eng_desc& desc);
bool same(const eng_desc& a, const eng_desc& b);

}  // namespace eng
