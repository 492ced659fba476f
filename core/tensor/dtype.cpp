// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dtype.hpp"

#include <fmt/core.h>

#include <limits>

#include "core/base/error.hpp"

namespace eng {
namespace {

struct Row {
  int32_t dtype;
  const char* name;
  const char* safetensors;
  DLDataType dlpack;
  bool floating;
};

constexpr Row rows[] = {
    {ENG_F32, "f32", "F32", {kDLFloat, 32, 1}, true},     {ENG_F64, "f64", "F64", {kDLFloat, 64, 1}, true},
    {ENG_BF16, "bf16", "BF16", {kDLBfloat, 16, 1}, true}, {ENG_F16, "f16", "F16", {kDLFloat, 16, 1}, true},
    {ENG_I32, "i32", "I32", {kDLInt, 32, 1}, false},      {ENG_I64, "i64", "I64", {kDLInt, 64, 1}, false},
    {ENG_U8, "u8", "U8", {kDLUInt, 8, 1}, false},
};

const Row& row(int32_t dtype) {
  for (const Row& r : rows)
    if (r.dtype == dtype) return r;
  throw Error(Exit::bug, fmt::format("{} is no element type (ENG_F32 .. ENG_U8)", dtype));
}

}  // namespace

bool dtype_known(int32_t dtype) {
  for (const Row& r : rows)
    if (r.dtype == dtype) return true;
  return false;
}

uint64_t dtype_size(int32_t dtype) {
  return row(dtype).dlpack.bits / 8;
}
const char* dtype_name(int32_t dtype) {
  return row(dtype).name;
}
const char* dtype_safetensors(int32_t dtype) {
  return row(dtype).safetensors;
}
DLDataType dtype_dlpack(int32_t dtype) {
  return row(dtype).dlpack;
}
bool dtype_floating(int32_t dtype) {
  return row(dtype).floating;
}

std::optional<int32_t> dtype_from_name(const std::string& name) {
  for (const Row& r : rows)
    if (name == r.name) return r.dtype;
  return std::nullopt;
}

std::optional<int32_t> dtype_from_safetensors(const std::string& name) {
  for (const Row& r : rows)
    if (name == r.safetensors) return r.dtype;
  return std::nullopt;
}

std::optional<int32_t> dtype_from_dlpack(const DLDataType& type) {
  for (const Row& r : rows)
    if (type.code == r.dlpack.code && type.bits == r.dlpack.bits && type.lanes == r.dlpack.lanes) return r.dtype;
  return std::nullopt;
}

uint64_t element_count(const eng_desc& desc) {
  if (desc.ndim > ENG_MAX_DIMS)
    throw Error(Exit::bug, fmt::format("a tensor has {} dimensions, {} is the most", desc.ndim, ENG_MAX_DIMS));
  constexpr uint64_t most = std::numeric_limits<int64_t>::max();
  uint64_t count = 1;
  bool empty = false, large = false;
  for (uint32_t k = 0; k < desc.ndim; ++k) {
    if (desc.dims[k] < 0) throw Error(Exit::bug, fmt::format("dimension {} of a tensor is {}", k, desc.dims[k]));
    const uint64_t n = static_cast<uint64_t>(desc.dims[k]);
    if (n == 0) {
      empty = true;
    } else if (count > most / n) {
      large = true;
    } else {
      count *= n;
    }
  }
  if (empty) return 0;
  if (large) throw Error(Exit::bug, "a tensor has more than 2^63 elements");
  return count;
}

uint64_t byte_count(const eng_desc& desc) {
  const uint64_t count = element_count(desc), size = dtype_size(desc.dtype);
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / size)
    throw Error(Exit::bug, "a tensor has more than 2^63 bytes");
  return count * size;
}

std::string describe(const eng_desc& desc) {
  std::string out = dtype_known(desc.dtype) ? dtype_name(desc.dtype) : fmt::format("dtype {}", desc.dtype);
  out += " (";
  for (uint32_t k = 0; k < desc.ndim && k < ENG_MAX_DIMS; ++k) out += fmt::format("{}{}", k ? ", " : "", desc.dims[k]);
  return out + ")";
}

bool same(const eng_desc& a, const eng_desc& b) {
  if (a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (uint32_t k = 0; k < a.ndim && k < ENG_MAX_DIMS; ++k)
    if (a.dims[k] != b.dims[k]) return false;
  return true;
}

}  // namespace eng
