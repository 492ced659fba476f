// SPDX-License-Identifier: Apache-2.0
// Results of plugins whose size the caller does not know.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "core/base/error.hpp"

namespace eng {

// Calls `fill(data, capacity)`, and once more with more room if the first was too small. `who`: in messages.
template <class Out, class Fill>
void with_room(const std::string& who, Exit exit, Out& out, Fill fill) {
  uint64_t count = fill(out.data(), out.size());
  if (count > out.size()) {
    if (count > uint64_t{1} << 32) throw Error(exit, fmt::format("{} asks for room for {}", who, count));
    out.resize(count);
    count = fill(out.data(), out.size());
    if (count > out.size())
      throw Error(exit, fmt::format("{} asks for room for {}, and then for {}", who, out.size(), count));
  }
  out.resize(count);
}

}  // namespace eng
