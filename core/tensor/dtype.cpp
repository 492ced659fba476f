// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace eng {
namespace {

struct Row {
  int32_t dtype;
  const char* name;
  DLDataType dlpack;
};

constexpr Row dtypes[] = {
    {ENG_F32, "f32", {kDLFloat, 32, 1}}, {ENG_F64, "f64", {kDLFloat, 64, 1}}, {ENG_BF16, "bf16", {kDLBfloat, 16, 1}},
    {ENG_F16, "f16", {kDLFloat, 16, 1}}, {ENG_I32, "i32", {kDLInt, 32, 1}},   {ENG_I64, "i64", {kDLInt, 64, 1}},
    {ENG_U8, "u8", {kDLUInt, 8, 1}},
};

const Row& row(int32_t dtype) {
  for (const Row& r : dtypes)
    if (r.dtype == dtype) return r;
  throw Error(Exit::bug, fmt::format("{} is not an element type (ENG_F32 .. ENG_U8)", dtype));
}

}  // namespace

uint64_t dtype_size(int32_t dtype) {
  return row(dtype).dlpack.bits / 8;
}
bool is_float(int32_t dtype) {
  return dtype == ENG_F32 || dtype == ENG_F64 || dtype == ENG_BF16 || dtype == ENG_F16;
}
// Infinities and NaNs are the values whose exponent bits are all set.
template <class T>
static bool all_lack(const void* values, uint64_t n, T exponent) {
  const auto* first = static_cast<const T*>(values);
  return std::all_of(first, first + n, [exponent](T bits) { return (bits & exponent) != exponent; });
}

bool all_finite(const void* values, int32_t dtype, uint64_t n) {
  if (dtype == ENG_F32) return all_lack<uint32_t>(values, n, 0x7f800000);
  if (dtype == ENG_F64) return all_lack<uint64_t>(values, n, 0x7ff0000000000000);
  if (dtype == ENG_BF16) return all_lack<uint16_t>(values, n, 0x7f80);
  return dtype != ENG_F16 || all_lack<uint16_t>(values, n, 0x7c00);
}

DLDataType dtype_dlpack(int32_t dtype) {
  return row(dtype).dlpack;
}

uint64_t element_count(const eng_desc& desc) {
  if (desc.ndim > ENG_MAX_DIMS)
    throw Error(Exit::bug, fmt::format("a tensor has {} dimensions, the limit is {}", desc.ndim, ENG_MAX_DIMS));
  const int64_t *begin = desc.dims, *end = begin + desc.ndim;
  for (const int64_t* n = begin; n != end; ++n)
    if (*n < 0) throw Error(Exit::bug, fmt::format("dimension {} of a tensor is {}", n - begin, *n));
  if (std::find(begin, end, 0) != end) return 0;
  uint64_t count = 1;
  for (const int64_t* n = begin; n != end; ++n)
    if (__builtin_mul_overflow(count, *n, &count) || count > uint64_t{INT64_MAX})
      throw Error(Exit::bug, "a tensor has more than 2^63 elements");
  return count;
}

uint64_t byte_count(const eng_desc& desc) {
  const uint64_t count = element_count(desc), size = dtype_size(desc.dtype);
  if (count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / size)
    throw Error(Exit::bug, "a tensor has more than 2^63 bytes");
  return count * size;
}

std::string describe(const eng_desc& desc) {
  const auto* known =
      std::find_if(std::begin(dtypes), std::end(dtypes), [&](const Row& r) { return r.dtype == desc.dtype; });
  const uint32_t ndim = std::min<uint32_t>(desc.ndim, ENG_MAX_DIMS);
  return fmt::format("{} ({})", known == std::end(dtypes) ? fmt::format("dtype {}", desc.dtype) : known->name,
                     fmt::join(desc.dims, desc.dims + ndim, ", "));
}

bool same(const eng_desc& a, const eng_desc& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim &&
         std::equal(a.dims, a.dims + std::min<uint32_t>(a.ndim, ENG_MAX_DIMS), b.dims);
}

}  // namespace eng
