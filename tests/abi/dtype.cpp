// SPDX-License-Identifier: Apache-2.0
#include "session/dtypes.hpp"

#include <catch2/catch.hpp>

#include "core/base/error.hpp"

TEST_CASE("every element type goes to its names and DLPack code and back") {
  int seen = 0;
  for (int32_t dtype = -1; dtype < 64; ++dtype) {
    if (dtype < ENG_F32 || dtype > ENG_U8) {
      CHECK_THROWS_AS(eng::dtype_size(dtype), eng::Error);
      continue;
    }
    ++seen;
    CHECK(eng::dtype_from_safetensors(eng::dtype_safetensors(dtype)) == dtype);
    CHECK(eng::dtype_from_dlpack(eng::dtype_dlpack(dtype)) == dtype);
    CHECK(eng::dtype_dlpack(dtype).bits == 8 * eng::dtype_size(dtype));
  }
  CHECK(seen == 7);
  CHECK(eng::dtype_size(ENG_F64) == 8);
  CHECK(eng::dtype_size(ENG_BF16) == 2);
  CHECK(eng::dtype_safetensors(ENG_BF16) == std::string("BF16"));
  CHECK(!eng::dtype_from_safetensors("F8_E4M3"));
  CHECK(!eng::dtype_from_dlpack({kDLFloat, 32, 2}));
  CHECK(!eng::dtype_from_dlpack({kDLBool, 8, 1}));
}

TEST_CASE("sizes of shapes, with their limits") {
  const eng_desc scalar{ENG_F32, 0, {}}, matrix{ENG_BF16, 2, {3, 5}}, none{ENG_F32, 3, {4, 0, INT64_MAX}};
  CHECK(eng::element_count(scalar) == 1);
  CHECK(eng::byte_count(matrix) == 30);
  CHECK(eng::byte_count(none) == 0);
  CHECK(eng::describe(matrix) == "bf16 (3, 5)");
  CHECK(eng::describe(scalar) == "f32 ()");
  CHECK(eng::same(matrix, {ENG_BF16, 2, {3, 5, 7}}));
  CHECK(!eng::same(matrix, {ENG_F16, 2, {3, 5}}));
  CHECK(!eng::same(matrix, {ENG_BF16, 2, {3, 6}}));
  CHECK_THROWS_AS(eng::element_count({ENG_F32, 2, {INT64_MAX, 2}}), eng::Error);
  CHECK_THROWS_AS(eng::byte_count({ENG_F32, 1, {INT64_MAX}}), eng::Error);
  CHECK_THROWS_AS(eng::element_count({ENG_F32, 1, {-1}}), eng::Error);
  CHECK_THROWS_AS(eng::element_count({ENG_F32, 7, {}}), eng::Error);
}
