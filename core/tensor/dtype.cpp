// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dtype.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace eng {
namespace {

struct Row {
  int32_t dtype;
  const char* name;
  const char* safetensors;
  DLDataType dlpack;
};

constexpr Row rows[] = {
    {ENG_F32, "f32", "F32", {kDLFloat, 32, 1}},     {ENG_F64, "f64", "F64", {kDLFloat, 64, 1}},
    {ENG_BF16, "bf16", "BF16", {kDLBfloat, 16, 1}}, {ENG_F16, "f16", "F16", {kDLFloat, 16, 1}},
    {ENG_I32, "i32", "I32", {kDLInt, 32, 1}},       {ENG_I64, "i64", "I64", {kDLInt, 64, 1}},
    {ENG_U8, "u8", "U8", {kDLUInt, 8, 1}},
};

const Row& row(int32_t dtype) {
  for (const Row& r : rows)
    if (r.dtype == dtype) return r;
  throw Error(Exit::bug, fmt::format("{} is no element type (ENG_F32 .. ENG_U8)", dtype));
}

}  // namespace

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
  int64_t count = 1;
  bool empty = false, large = false;
  for (uint32_t k = 0; k < desc.ndim; ++k) {
    const int64_t n = desc.dims[k];
    if (n < 0) throw Error(Exit::bug, fmt::format("dimension {} of a tensor is {}", k, n));
    empty |= n == 0;
    large |= __builtin_mul_overflow(count, std::max<int64_t>(n, 1), &count);
  }
  if (large && !empty) throw Error(Exit::bug, "a tensor has more than 2^63 elements");
  return empty ? 0 : static_cast<uint64_t>(count);
}

uint64_t byte_count(const eng_desc& desc) {
  const uint64_t count = element_count(desc), size = dtype_size(desc.dtype);
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / size)
    throw Error(Exit::bug, "a tensor has more than 2^63 bytes");
  return count * size;
}

std::string describe(const eng_desc& desc) {
  const auto* known =
      std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return r.dtype == desc.dtype; });
  const uint32_t ndim = std::min<uint32_t>(desc.ndim, ENG_MAX_DIMS);
  return fmt::format("{} ({})", known == std::end(rows) ? fmt::format("dtype {}", desc.dtype) : known->name,
                     fmt::join(desc.dims, desc.dims + ndim, ", "));
}

bool same(const eng_desc& a, const eng_desc& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim &&
         std::equal(a.dims, a.dims + std::min<uint32_t>(a.ndim, ENG_MAX_DIMS), b.dims);
}

}  // namespace eng
