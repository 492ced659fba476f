// SPDX-License-Identifier: Apache-2.0
// Tensors as DLPack (engine/dlpack.h), for other programs.
#pragma once

#include <memory>

#include "core/tensor/dtype.hpp"

namespace eng {

// The element type; nullopt for one that the engine does not have.
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
