// SPDX-License-Identifier: Apache-2.0
// The measurements that a device makes of itself while a run goes on (engine/monitor.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/registry/registry.hpp"
#include "engine/monitor.h"
#include "session/clock.hpp"

namespace eng {

// Unknown values are left out.
struct DeviceUse {
  std::optional<uint64_t> used_bytes;                 // of its memory, by everybody
  std::optional<double> utilisation, celsius, watts;  // utilisation: share of the time, 0 to 1
};

class DeviceMonitor {
 public:
  DeviceMonitor() = default;  // of a device without gauges
  // Monitors the device of this name that the rank uses. A device without a monitor, or without a driver to ask, has no
  // gauges.
  DeviceMonitor(Registry& registry, const std::string& device, uint32_t local_rank);
  // Asks the device, at most once a second, since the answer takes time. None in between, and if it tells nothing.
  std::optional<DeviceUse> read();

 private:
  eng_monitor table_{};
  std::shared_ptr<void> self_;
  std::optional<SteadyClock::time_point> asked_;
};

}  // namespace eng
