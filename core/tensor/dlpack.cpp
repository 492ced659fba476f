// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dlpack.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace eng {
namespace {

std::string device_name(const DLDevice& device) {
  if (device.device_type == kDLCPU) return fmt::format("cpu:{}", device.device_id);
  if (device.device_type == kDLCUDA) return fmt::format("cuda:{}", device.device_id);
  return fmt::format("DLPack device type {}:{}", static_cast<int>(device.device_type), device.device_id);
}

// Lives behind a DLManagedTensorVersioned until its deleter runs.
struct Exported {
  explicit Exported(const TensorView& v) : view(v) {
    int64_t stride = element_count(view.desc) ? 1 : 0;  // also checks the shape
    for (uint32_t k = view.desc.ndim; k-- > 0; stride *= view.desc.dims[k]) strides[k] = stride;
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); };
    managed.flags = view.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    managed.dl_tensor = {view.data,
                         view.device,
                         static_cast<int32_t>(view.desc.ndim),
                         dtype_dlpack(view.desc.dtype),
                         view.desc.dims,
                         strides,
                         0};
  }
  TensorView view;
  int64_t strides[ENG_MAX_DIMS] = {};
  DLManagedTensorVersioned managed{};
};

}  // namespace

DLManagedTensorVersioned* export_tensor(const TensorView& view) {
  return &(new Exported(view))->managed;
}

TensorView import_tensor(DLManagedTensorVersioned* tensor, const ImportRequest& request) {
  const auto need = [&]<class... Args>(bool right, fmt::format_string<Args...> text, Args&&... args) {
    if (!right)
      throw Error(Exit::environment,
                  fmt::format("{}: {}", request.what, fmt::format(text, std::forward<Args>(args)...)));
  };
  need(tensor, "there is no tensor (NULL)");
  TensorView out;
  // Ours from here on, whatever the checks say.
  out.owner = std::shared_ptr<void>(tensor, [tensor](void*) {
    if (tensor->deleter) tensor->deleter(tensor);
  });
  need(tensor->version.major == DLPACK_MAJOR_VERSION, "it is laid out by DLPack {}.{}, this engine reads {}.x",
       +tensor->version.major, +tensor->version.minor, DLPACK_MAJOR_VERSION);
  out.read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  need(!out.read_only || !request.writable, "it is read-only, but will be written: pass a copy");
  const DLTensor& t = tensor->dl_tensor;
  out.device = t.device;
  need(t.device.device_type == request.device.device_type && t.device.device_id == request.device.device_id,
       "the tensor is on {}, {} is needed", device_name(t.device), device_name(request.device));
  const auto dtype = dtype_from_dlpack(t.dtype);
  need(dtype.has_value(),
       "element type (code {}, {} bits, {} lanes) is not supported: use f32, f64, bf16, f16, i32, i64 or u8, one lane",
       +t.dtype.code, +t.dtype.bits, +t.dtype.lanes);
  need(t.ndim >= 0 && t.ndim <= ENG_MAX_DIMS, "it has {} dimensions, 0 to {} are supported", +t.ndim, ENG_MAX_DIMS);
  need(!t.ndim || t.shape, "its shape is NULL");
  out.desc.dtype = *dtype;
  out.desc.ndim = static_cast<uint32_t>(t.ndim);
  std::copy_n(t.shape, t.ndim, out.desc.dims);
  uint64_t bytes = 0;
  try {
    bytes = byte_count(out.desc);
  } catch (const Error& error) {
    need(false, "{}", error.what());
  }
  if (!bytes) return out;  // no elements: no data is needed, and no stride means anything
  int64_t dense = 1;
  for (uint32_t k = out.desc.ndim; t.strides && k-- > 0; dense *= out.desc.dims[k])
    // The stride of a dimension of one element is never used.
    need(out.desc.dims[k] == 1 || t.strides[k] == dense,
         "{} is not dense: stride {} of dimension {}, {} is needed; make a contiguous copy first", describe(out.desc),
         +t.strides[k], k, dense);
  need(t.data, "{} has no data", describe(out.desc));
  uintptr_t first = 0, last = 0;
  need(!__builtin_add_overflow(reinterpret_cast<uintptr_t>(t.data), t.byte_offset, &first) &&
           !__builtin_add_overflow(first, bytes, &last),
       "byte_offset {} leads out of memory", +t.byte_offset);
  need(first % dtype_size(*dtype) == 0, "its data is not aligned to elements of {} bytes", dtype_size(*dtype));
  out.data = static_cast<char*>(t.data) + t.byte_offset;
  return out;
}

}  // namespace eng
