// SPDX-License-Identifier: Apache-2.0
// The rate of this machine's memory where updates of parameters run on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/planning/setup.hpp"

namespace eng {

constexpr uint64_t most_measured = uint64_t{512} << 20;  // bytes of memory whose rate is measured

// Bytes per second that `threads` move in passes like an update of AdamW: four values read and three written for each
// parameter, 28 bytes. The best of some passes, of which none begins after 0.3 s, rounded to two digits; 0 without
// memory or threads for it. Takes up to `bytes`.
double measured_host_rate(uint64_t threads, uint64_t bytes);

// For a run whose plan assumes this rate: parameters are updated on the host beside a device with memory of its own,
// that is here, and [host] memory_bandwidth is absent.
bool assumes_host_rate(const Setup& setup, const Config& config);
// This machine's rate for such a run, measured in as much memory as the host's arenas of the plan will take; nothing if
// these are so small that caches hold them, or if this rank is one of several and bound to some processors. Call it
// before they exist.
std::optional<double> host_rate_for(const Setup& setup, const Config& config);
// A note for the user, if one was measured that differs from the assumed one by more than a quarter; else "".
std::string host_rate_note(std::optional<double> measured);

}  // namespace eng
