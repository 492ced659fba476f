// SPDX-License-Identifier: Apache-2.0
// Element types on their way in and out: every 16-bit value survives, and rounding is to nearest even.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "scratch.hpp"
#include "session/checkpoint/convert.hpp"

using namespace eng;

namespace {

float widened(int32_t dtype, uint16_t bits) {
  float out = 0;
  convert(dtype, &bits, ENG_F32, &out, 1);
  return out;
}

uint16_t narrowed(int32_t dtype, float value) {
  uint16_t out = 0;
  convert(ENG_F32, &value, dtype, &out, 1);
  return out;
}

}  // namespace

TEST_CASE("convert: every 16-bit value comes back with its bits", "[convert]") {
  for (int32_t dtype : {ENG_BF16, ENG_F16}) {
    int wrong = 0;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      wrong += narrowed(dtype, widened(dtype, static_cast<uint16_t>(bits))) != bits;
    CHECK(wrong == 0);
  }
}

TEST_CASE("convert: between neighbours the nearer one wins, and the even one in the middle", "[convert]") {
  for (int32_t dtype : {ENG_BF16, ENG_F16}) {
    int wrong = 0;
    const uint16_t infinity = dtype == ENG_BF16 ? 0x7f80 : 0x7c00;
    for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
      const auto next = static_cast<uint16_t>(bits + 1), even = bits % 2 ? next : bits;
      const float low = widened(dtype, bits), high = widened(dtype, next);
      const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
      wrong += narrowed(dtype, middle) != even;
      wrong += narrowed(dtype, std::nextafter(middle, low)) != bits;
      wrong += narrowed(dtype, std::nextafter(middle, high)) != next;
      wrong += narrowed(dtype, -middle) != (even | 0x8000);
    }
    CHECK(wrong == 0);
    CHECK(narrowed(dtype, std::numeric_limits<float>::max()) == infinity);
    CHECK(narrowed(dtype, -std::numeric_limits<float>::infinity()) == (infinity | 0x8000));
    CHECK(std::isnan(widened(dtype, narrowed(dtype, std::numeric_limits<float>::quiet_NaN()))));
    // A NaN whose upper bits are all zero does not become an infinity.
    CHECK(std::isnan(widened(dtype, narrowed(dtype, std::bit_cast<float>(0x7f800001u)))));
  }
  CHECK(widened(ENG_F16, 0x0001) == 0x1p-24f);
  CHECK(widened(ENG_F16, 0x7bff) == 65504.0f);
  CHECK(narrowed(ENG_F16, 65519.996f) == 0x7bff);
  CHECK(narrowed(ENG_F16, 65520.0f) == 0x7c00);
  CHECK(narrowed(ENG_BF16, 1.0f) == 0x3f80);
}

TEST_CASE("convert: types that cannot store weights are refused", "[convert]") {
  const float in = 1;
  int32_t out = 0;
  CHECK_THAT(test::refusal(Exit::bug, [&] { convert(ENG_F32, &in, ENG_I32, &out, 1); }),
             Catch::Contains("no conversion from F32 to I32"));
}
