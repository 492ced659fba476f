// SPDX-License-Identifier: Apache-2.0
#include "monitor.hpp"

#include <array>
#include <memory>

#include "../common/cuda/visible.hpp"
#include "device.hpp"
#include "nvml.hpp"

namespace cuda {
namespace {

struct Monitor {
  const nvml::Library library;
  nvml::Device gpu = nullptr;
};

std::string monitor_name() {
  return "monitor cuda";
}

eng_status open_monitor(uint32_t local_rank, void** self, eng_error* sink) {
  return guarded(sink, monitor_name, [&] {
    std::string why;
    const int visible = device_count(why), index = visible ? gpu_of_rank(local_rank, visible) : -1;
    if (index < 0) throw Error{ENG_UNAVAILABLE, visible ? too_few_gpus(local_rank, visible) : why};
    std::array<char, 32> bus{};
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size() - 1), index), "asking where the GPU is");
    auto monitor = std::make_unique<Monitor>();
    const nvml::Library& m = monitor->library;
    if (!m.here)
      throw Error{ENG_UNAVAILABLE, "libnvidia-ml.so.1, a part of the driver, is not there, or does not start"};
    if (!m.get(monitor->gpu, m.by_bus, bus.data()))
      throw Error{ENG_UNAVAILABLE, std::string("libnvidia-ml.so.1 does not know the GPU at ") + bus.data()};
    *self = monitor.release();
  });
}

void close_monitor(void* self) {
  delete static_cast<Monitor*>(self);
}

eng_status read_monitor(void* self, eng_gauges* out, eng_error*) {
  const auto& [m, gpu] = *static_cast<const Monitor*>(self);
  nvml::Memory memory{};
  nvml::Utilization busy{};
  unsigned degrees = 0, milliwatts = 0;
  if (m.get(memory, m.memory, gpu)) out->used_bytes = memory.used;
  if (m.get(busy, m.utilization, gpu)) out->utilisation = busy.gpu / 100.0;
  if (m.get(degrees, m.temperature, gpu, 0u)) out->celsius = degrees;
  if (m.get(milliwatts, m.power, gpu)) out->watts = milliwatts / 1000.0;
  return ENG_OK;
}

}  // namespace

const eng_monitor monitor_table = {sizeof(eng_monitor), 0, open_monitor, close_monitor, read_monitor};

}  // namespace cuda
