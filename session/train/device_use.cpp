// SPDX-License-Identifier: Apache-2.0
#include "session/train/device_use.hpp"

#include <cmath>

namespace eng {

DeviceMonitor::DeviceMonitor(Registry& registry, const std::string& device, uint32_t local_rank) {
  if (registry.providers(ENG_MONITOR_KIND, device).empty()) return;
  table_ = registry.table<eng_monitor>(ENG_MONITOR_KIND, device);
  Sink sink;
  void* self = nullptr;
  if (table_.open(local_rank, &self, sink.get()) == ENG_OK) self_ = std::shared_ptr<void>(self, table_.close);
}

std::optional<DeviceUse> DeviceMonitor::read() {
  if (!self_ || (asked_ && since(*asked_) < 1)) return std::nullopt;
  asked_ = SteadyClock::now();
  eng_gauges told{sizeof(eng_gauges), 0, 0, -1, -1, -1};
  Sink sink;
  if (table_.read(self_.get(), &told, sink.get()) != ENG_OK) return std::nullopt;  // no reason to end a run
  const auto known = [](double value) {
    return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
  };
  DeviceUse out{std::nullopt, known(told.utilisation), known(told.celsius), known(told.watts)};
  if (told.used_bytes) out.used_bytes = told.used_bytes;
  if (!out.used_bytes && !out.utilisation && !out.celsius && !out.watts) return std::nullopt;
  return out;
}

}  // namespace eng
