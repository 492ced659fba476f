// SPDX-License-Identifier: Apache-2.0
// Element types, shapes, and tensors to and from DLPack (engine/dlpack.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base.h"
#include "engine/dlpack.h"
#include "engine/tensor.h"

namespace eng {

// Of an ENG_F32 .. ENG_U8 value; all throw Error(Exit::bug) for anything else.
uint64_t dtype_size(int32_t dtype);            // bytes of one element
const char* dtype_safetensors(int32_t dtype);  // "F32", "BF16", "I64", ...
DLDataType dtype_dlpack(int32_t dtype);        // one lane
bool is_float(int32_t dtype);                  // false for what is no type

// The inverses; nullopt for a type the engine does not have.
std::optional<int32_t> dtype_from_safetensors(const std::string& name);
std::optional<int32_t> dtype_from_dlpack(const DLDataType& type);

// Copies elements from one of f32, bf16 and f16 to another; to fewer bits by rounding to nearest, ties to even.
// Throws Error(Exit::bug) for other types, unless both are the same.
void convert(int32_t from, const void* in, int32_t to, void* out, uint64_t count);

// Of a dense tensor. Throw Error(Exit::bug) for a shape that is none, or needs more than 63 bits.
uint64_t element_count(const eng_desc& desc);
uint64_t byte_count(const eng_desc& desc);
// "f32 (8, 256, 512)", "i32 ()".
std::string describe(const eng_desc& desc);
bool same(const eng_desc& a, const eng_desc& b);

// A dense, row-major tensor in memory, which lives as long as `owner` (or somebody else cares for it).
struct TensorView {
  void* data = nullptr;
  eng_desc desc{};
  DLDevice device{kDLCPU, 0};
  bool read_only = false;
  std::shared_ptr<void> owner{};
};

// For a consumer, who keeps `view.owner` alive until it calls the deleter. Strides are always given.
DLManagedTensorVersioned* export_tensor(const TensorView& view);

// What the consumer wants; `what` names the tensor in messages.
struct ImportRequest {
  std::string what;
  DLDevice device{kDLCPU, 0};
  bool writable = false;
};

// Checks the tensor and takes it over: its deleter runs once, when the last copy of `owner` goes or before this
// throws Error(Exit::environment). byte_offset is folded into the data pointer.
TensorView import_tensor(DLManagedTensorVersioned* tensor, const ImportRequest& request);

}  // namespace eng
