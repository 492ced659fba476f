// SPDX-License-Identifier: Apache-2.0
#include "session/dlpack.hpp"

namespace eng {

std::optional<int32_t> dtype_from_dlpack(const DLDataType& type) {
  for (int32_t dtype = ENG_F32; dtype <= ENG_U8; ++dtype)
    if (const DLDataType own = dtype_dlpack(dtype);
        type.code == own.code && type.bits == own.bits && type.lanes == own.lanes)
      return dtype;
  return std::nullopt;
}

namespace {

// Owns a DLManagedTensorVersioned, until its deleter runs.
struct Exported {
  explicit Exported(const TensorView& v) : view(v) {
    int64_t stride = element_count(view.desc) ? 1 : 0;  // also checks the shape
    for (uint32_t k = view.desc.ndim; k-- > 0; stride *= view.desc.dims[k]) strides[k] = stride;
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); };
    managed.flags = view.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    const auto ndim = static_cast<int32_t>(view.desc.ndim);
    managed.dl_tensor = {view.data, view.device, ndim, dtype_dlpack(view.desc.dtype), view.desc.dims, strides, 0};
  }
  TensorView view;
  int64_t strides[ENG_MAX_DIMS] = {};
  DLManagedTensorVersioned managed{};
};

}  // namespace

DLManagedTensorVersioned* export_tensor(const TensorView& view) {
  return &(new Exported(view))->managed;
}

}  // namespace eng
