// SPDX-License-Identifier: Apache-2.0
// Element types and tensors as others know them: DLPack (engine/dlpack.h), safetensors.
#pragma once

#include <memory>

#include "core/tensor/dtype.hpp"

namespace eng {

// "F32", "BF16", "I64", ... Throws Error(Exit::bug) for what is not a type.
const char* dtype_safetensors(int32_t dtype);
// The inverses; nullopt for a type that the engine does not have.
std::optional<int32_t> dtype_from_safetensors(const std::string& name);
std::optional<int32_t> dtype_from_dlpack(const DLDataType& type);

// A dense, row-major tensor in memory. `owner` keeps the memory alive; if it is null, the caller does.
struct TensorView {
  void* data = nullptr;
  eng_desc desc{};
  DLDevice device{kDLCPU, 0};
  bool read_only = false;
  std::shared_ptr<void> owner{};
};

// Exports a tensor. `view.owner` stays alive until the consumer calls the deleter. Strides are always given.
DLManagedTensorVersioned* export_tensor(const TensorView& view);

}  // namespace eng
