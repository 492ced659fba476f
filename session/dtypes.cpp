// SPDX-License-Identifier: Apache-2.0
#include "session/dtypes.hpp"

#include "core/base/error.hpp"

namespace eng {

namespace {

constexpr std::pair<int32_t, const char*> stored_types[] = {{ENG_F32, "F32"}, {ENG_F64, "F64"}, {ENG_BF16, "BF16"},
                                                            {ENG_F16, "F16"}, {ENG_I32, "I32"}, {ENG_I64, "I64"},
                                                            {ENG_U8, "U8"}};

}  // namespace

const char* dtype_safetensors(int32_t dtype) {
  for (const auto& [type, name] : stored_types)
    if (type == dtype) return name;
  throw Error(Exit::bug, fmt::format("{} is not an element type (ENG_F32 .. ENG_U8)", dtype));
}

std::optional<int32_t> dtype_from_safetensors(const std::string& name) {
  for (const auto& [type, stored] : stored_types)
    if (name == stored) return type;
  return std::nullopt;
}

std::optional<int32_t> dtype_from_dlpack(const DLDataType& type) {
  for (const auto& [dtype, name] : stored_types)
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
