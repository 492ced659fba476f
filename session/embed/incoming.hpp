// SPDX-License-Identifier: Apache-2.0
// Tensors that a caller hands over as DLPack (eng_tensor_in), and batches made of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/embed.h"
#include "session/data/data.hpp"

namespace eng {

// A tensor of the caller while it is read. Its deleter, if it moved here, runs in the destructor.
class Incoming {
 public:
  // Takes ownership before it checks. `what` names it in messages: "field `tokens`". Throws Error(Exit::usage), or
  // Unsupported for what another version of DLPack or another element type says.
  Incoming(const eng_tensor_in& given, std::string what);
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  const std::string& what() const { return what_; }
  const DLDataType& type() const { return tensor_->dtype; }
  const std::vector<int64_t>& shape() const { return shape_; }
  uint64_t count() const { return count_; }          // elements
  uint64_t size() const { return type().bits / 8; }  // bytes of one
  std::string text() const;                          // "int64 (8, 256)"

  // Copies elements [first, first + n) in row-major order. `from_device` reads dense memory of the session's device, if
  // that is not the host's; `device` is that device.
  using FromDevice = std::function<void(void* to, const void* from, uint64_t bytes)>;
  void read(uint64_t first, uint64_t n, void* to, const DLDevice& device, const FromDevice& from_device) const;
  // The elements, if they lie side by side in memory of the host; else nullptr.
  const void* in_place() const;
  // All elements of an integer type. Throws Error(Exit::data) for a value that is no int32.
  std::vector<int32_t> ids(const DLDevice& device, const FromDevice& from_device) const;

 private:
  void check();
  const std::string what_;
  eng_tensor_in given_;
  const DLTensor* tensor_ = nullptr;
  std::vector<int64_t> shape_, strides_;  // in elements
  uint64_t count_ = 1;
  bool dense_ = true;
};

// A valid request that this engine cannot serve: ENG_UNSUPPORTED.
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message, std::string help = "")
      : Error(Exit::usage, message, std::move(help)) {}
};

// ENG_NOT_FOUND.
class NotFound : public Error {
 public:
  explicit NotFound(const std::string& message, std::string help = "") : Error(Exit::usage, message, std::move(help)) {}
};

// The required shape of a batch.
struct BatchShape {
  int64_t rows;  // exactly; 0: any number
  int64_t length;
  bool labels = true;                          // made or given; else only tokens are looked at
  std::span<const std::string> optional = {};  // fields that may be missing: they get their neutral values
};

// The batch of these fields: "tokens" (rows, length) or (rows, length + 1), "labels" (rows, length), and each further
// field that the model reads. All tensors are given back, also if it throws. `data` knows the fields and checks them.
Batch batch_of(std::span<const eng_tensor_in> fields, const BatchShape& shape, const Data& data, const DLDevice& device,
               const Incoming::FromDevice& from_device);

// Gives all of them back, unread.
void refuse_all(std::span<const eng_tensor_in> fields) noexcept;

}  // namespace eng
