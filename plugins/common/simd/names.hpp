// SPDX-License-Identifier: Apache-2.0
// Names of 16-bit elements in memory: half.hpp has the code that reads and writes them. And what the numbers of
// stochastic rounding depend on, besides the element: random.hpp makes them.
#pragma once

#include <stdint.h>

namespace cpu {

enum class bf16 : uint16_t {};
enum class f16 : uint16_t {};

struct rounding_key {
  uint64_t seed;
  uint32_t stream, update;  // of the parameter; the number of the update
};

}  // namespace cpu
