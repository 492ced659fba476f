// SPDX-License-Identifier: Apache-2.0
// SANITIZED: a sanitizer's own memory and time are in no plan and no claim.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

// A bound on seconds is multiplied by this: the load of a processor when it is read, at least 1. So a busy machine is
// given more time. A sanitized program has no bounds on time.
struct Patience {
  operator double() const {
#ifdef SANITIZED
    return 1e6;
#else
    double minute = 0, rest[2];
    int64_t running = 0;
    std::ifstream("/proc/loadavg") >> minute >> rest[0] >> rest[1] >> running;
    const auto processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    return std::max(1.0, std::max(minute, static_cast<double>(running)) / processors);
#endif
  }
};
inline constexpr Patience patience{};
