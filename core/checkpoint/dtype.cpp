// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/dtype.hpp"

#include "core/base/error.hpp"

namespace eng {
namespace {

struct Row {
  int32_t dtype;
  const char* name;
  uint64_t bytes;
};

constexpr Row kRows[] = {
    {ENG_F32, "F32", 4}, {ENG_F64, "F64", 8}, {ENG_BF16, "BF16", 2}, {ENG_F16, "F16", 2},
    {ENG_I32, "I32", 4}, {ENG_I64, "I64", 8}, {ENG_U8, "U8", 1},
};

const Row& row(int32_t dtype) {
  for (const Row& r : kRows) {
    if (r.dtype == dtype) return r;
  }
  throw Error(Exit::bug, "element type " + std::to_string(dtype) + " has no name in a checkpoint");
}

}  // namespace

const char* dtype_name(int32_t dtype) {
  return row(dtype).name;
}

uint64_t dtype_bytes(int32_t dtype) {
  return row(dtype).bytes;
}

int32_t dtype_from_name(const std::string& name) {
  for (const Row& r : kRows) {
    if (name == r.name) return r.dtype;
  }
  return 0;
}

}  // namespace eng
