// SPDX-License-Identifier: Apache-2.0
// Tensors to and from DLPack (engine/dlpack.h).
#pragma once

#include <memory>
#include <string>

#include "core/tensor/dtype.hpp"

namespace eng {

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

// Checks version, element type, shape, dense strides (or NULL), device and alignment, and takes over the tensor:
// the producer's deleter runs once, when the last copy of `owner` goes or before this throws
// Error(Exit::environment). byte_offset is folded into the data pointer.
TensorView import_tensor(DLManagedTensorVersioned* tensor, const ImportRequest& request);

}  // namespace eng
