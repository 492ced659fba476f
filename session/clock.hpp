// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace eng {

using SteadyClock = std::chrono::steady_clock;

// Seconds.
inline double since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

}  // namespace eng
