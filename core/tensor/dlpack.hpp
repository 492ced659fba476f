// SPDX-License-Identifier: Apache-2.0
// Tensors to and from DLPack (engine/dlpack.h).
#pragma once

#include <memory>
#include <string>

#include "core/tensor/dtype.hpp"

namespace eng {

// A dense, row-major tensor in memory. Owns nothing.
struct TensorView {
  void* data = nullptr;
  eng_desc desc{};
  DLDevice device{kDLCPU, 0};
  bool read_only = false;
};

// The view as a DLTensor, for the length of a call. Its strides are always given.
class BorrowedTensor {
 public:
  explicit BorrowedTensor(const TensorView& view);
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;
  const DLTensor* get() const { return &tensor_; }

 private:
  int64_t shape_[ENG_MAX_DIMS] = {};
  int64_t strides_[ENG_MAX_DIMS] = {};
  DLTensor tensor_{};
};

// The view for a consumer that keeps it: `owner` lives until the consumer calls the deleter.
DLManagedTensorVersioned* export_tensor(const TensorView& view, std::shared_ptr<void> owner);

// What the consumer wants; `what` names the tensor in messages.
struct ImportRequest {
  std::string what;
  DLDevice device{kDLCPU, 0};
  bool writable = false;
};

// Checks a borrowed tensor: element type, shape, dense strides (or NULL), device, alignment. byte_offset is
// folded into the data pointer. Throws Error(Exit::environment).
TensorView import_view(const DLTensor& tensor, const ImportRequest& request);

// The same for a tensor whose ownership moves here. The producer's deleter runs once: when the last copy of
// `owner` goes, or before this throws.
struct ImportedTensor {
  TensorView view;
  std::shared_ptr<void> owner;
};
ImportedTensor import_tensor(DLManagedTensorVersioned* tensor, const ImportRequest& request);

}  // namespace eng
