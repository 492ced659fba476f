// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace eng {

// Elements [first, first + count).
struct Range {
  uint64_t first = 0, count = 0;
  bool operator==(const Range&) const = default;
};

}  // namespace eng
