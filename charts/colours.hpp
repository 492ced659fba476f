// SPDX-License-Identifier: Apache-2.0
// The colours of charts and of the pages around them.
#pragma once

#include <cstdint>

namespace charts {

// 0xRRGGBB on a light page, on a dark one, and on paper. A page has it as the variable --NAME.
struct Colour {
  const char* name;
  uint32_t light, dark, paper;
};

// The first ones, as many as `series`, tell series apart; the others have a meaning.
inline constexpr Colour colours[] = {{"s0", 0x0060a8, 0x62b0f5, 0x0060a8},   {"s1", 0xc04a00, 0xff9a55, 0xc04a00},
                                     {"s2", 0x00795a, 0x3fd0a3, 0x00795a},   {"s3", 0xa8328a, 0xec8fd4, 0xa8328a},
                                     {"s4", 0x7a6200, 0xe0c34a, 0x7a6200},   {"s5", 0x3a78d0, 0x9cc4ff, 0x3a78d0},
                                     {"s6", 0x6a3fb5, 0xc3a5ff, 0x6a3fb5},   {"s7", 0x444c56, 0xc5ced8, 0x444c56},
                                     {"text", 0x1b1f24, 0xe6edf3, 0x000000}, {"soft", 0x59636e, 0x9aa4af, 0x333333},
                                     {"line", 0xd8dee4, 0x2f3740, 0xbbbbbb}, {"back", 0xffffff, 0x0f141a, 0xffffff},
                                     {"note", 0xfff8c5, 0x3a3314, 0xffffff}};
inline constexpr int series = 8;

}  // namespace charts
