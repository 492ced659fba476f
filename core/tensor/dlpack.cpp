// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dlpack.hpp"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "core/base/error.hpp"

namespace eng {
namespace {

Error refuse(const ImportRequest& request, const std::string& why, const std::string& help = "") {
  return Error(Exit::environment, fmt::format("{}: {}", request.what, why), help);
}

std::string device_name(const DLDevice& device) {
  const char* type = device.device_type == kDLCPU ? "cpu" : device.device_type == kDLCUDA ? "cuda" : nullptr;
  return type ? fmt::format("{}:{}", type, device.device_id)
              : fmt::format("DLPack device type {}:{}", static_cast<int>(device.device_type), device.device_id);
}

// Lives behind a DLManagedTensorVersioned until its deleter runs.
struct Exported {
  Exported(const TensorView& view, std::shared_ptr<void> o) : borrowed(view), owner(std::move(o)) {
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); };
    managed.flags = view.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    managed.dl_tensor = *borrowed.get();
  }
  BorrowedTensor borrowed;
  std::shared_ptr<void> owner;
  DLManagedTensorVersioned managed{};
};

}  // namespace

BorrowedTensor::BorrowedTensor(const TensorView& view) {
  const int64_t count = static_cast<int64_t>(element_count(view.desc));  // also checks the shape
  int64_t stride = 1;
  for (uint32_t k = view.desc.ndim; k-- > 0;) {
    shape_[k] = view.desc.dims[k];
    strides_[k] = stride;
    if (count) stride *= shape_[k];
  }
  tensor_.data = view.data;
  tensor_.device = view.device;
  tensor_.ndim = static_cast<int32_t>(view.desc.ndim);
  tensor_.dtype = dtype_dlpack(view.desc.dtype);
  tensor_.shape = shape_;
  tensor_.strides = strides_;
}

DLManagedTensorVersioned* export_tensor(const TensorView& view, std::shared_ptr<void> owner) {
  return &(new Exported(view, std::move(owner)))->managed;
}

TensorView import_view(const DLTensor& tensor, const ImportRequest& request) {
  TensorView out;
  out.device = tensor.device;
  if (tensor.device.device_type != request.device.device_type || tensor.device.device_id != request.device.device_id)
    throw refuse(request, fmt::format("the tensor is on {}, {} is needed", device_name(tensor.device),
                                      device_name(request.device)));
  const auto dtype = dtype_from_dlpack(tensor.dtype);
  if (!dtype)
    throw refuse(request,
                 fmt::format("element type (code {}, {} bits, {} lanes) is not supported", tensor.dtype.code,
                             tensor.dtype.bits, tensor.dtype.lanes),
                 "use f32, f64, bf16, f16, i32, i64 or u8 with one lane");
  out.desc.dtype = *dtype;
  if (tensor.ndim < 0 || tensor.ndim > ENG_MAX_DIMS)
    throw refuse(request, fmt::format("it has {} dimensions, 0 to {} are supported", tensor.ndim, ENG_MAX_DIMS));
  if (tensor.ndim && !tensor.shape) throw refuse(request, "its shape is NULL");
  out.desc.ndim = static_cast<uint32_t>(tensor.ndim);
  for (uint32_t k = 0; k < out.desc.ndim; ++k) {
    if (tensor.shape[k] < 0) throw refuse(request, fmt::format("dimension {} is {}", k, tensor.shape[k]));
    out.desc.dims[k] = tensor.shape[k];
  }
  uint64_t bytes = 0;
  try {
    bytes = byte_count(out.desc);
  } catch (const Error& error) {
    throw refuse(request, error.what());
  }
  // The stride of a dimension of one element is never used, and an empty tensor has no elements to stride over.
  int64_t dense = 1;
  for (uint32_t k = out.desc.ndim; bytes && tensor.strides && k-- > 0;) {
    if (out.desc.dims[k] != 1 && tensor.strides[k] != dense)
      throw refuse(request,
                   fmt::format("{} is not dense: stride {} of dimension {}, {} is needed", describe(out.desc),
                               tensor.strides[k], k, dense),
                   "make a contiguous copy first");
    dense *= out.desc.dims[k];
  }
  if (bytes) {
    if (!tensor.data) throw refuse(request, fmt::format("{} has no data", describe(out.desc)));
    const auto base = reinterpret_cast<uintptr_t>(tensor.data);
    if (tensor.byte_offset > std::numeric_limits<uintptr_t>::max() - base ||
        bytes > std::numeric_limits<uintptr_t>::max() - base - tensor.byte_offset)
      throw refuse(request, fmt::format("byte_offset {} leads out of memory", tensor.byte_offset));
    if ((base + tensor.byte_offset) % dtype_size(*dtype))
      throw refuse(request, fmt::format("its data is not aligned to elements of {} bytes", dtype_size(*dtype)));
    out.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  }
  return out;
}

ImportedTensor import_tensor(DLManagedTensorVersioned* tensor, const ImportRequest& request) {
  if (!tensor) throw refuse(request, "there is no tensor (NULL)");
  ImportedTensor out;
  // Ours from here on, whatever the checks say.
  out.owner = std::shared_ptr<void>(tensor, [](void* p) {
    auto* self = static_cast<DLManagedTensorVersioned*>(p);
    if (self->deleter) self->deleter(self);
  });
  if (tensor->version.major != DLPACK_MAJOR_VERSION)
    throw refuse(request, fmt::format("it is laid out by DLPack {}.{}, this engine reads {}.x", tensor->version.major,
                                      tensor->version.minor, DLPACK_MAJOR_VERSION));
  const bool read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  if (read_only && request.writable) throw refuse(request, "it is read-only, but will be written", "pass a copy");
  out.view = import_view(tensor->dl_tensor, request);
  out.view.read_only = read_only;
  return out;
}

}  // namespace eng
