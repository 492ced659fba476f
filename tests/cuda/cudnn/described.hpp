// SPDX-License-Identifier: Apache-2.0
// GPUs as cuDNN wants them described. The numbers are public figures; no GPU has confirmed them.
#pragma once

#include <string>
#include <string_view>

#include "plugins/cuda/attention_graph.hpp"

namespace cudnn_test {

struct Gpu {
  const char* name;
  uint32_t arch, processors;
  int64_t shared, l2, clock, memory_clock, memory, bus;  // bytes for a block that asks, bytes, kHz, kHz, bytes, bits
};
constexpr Gpu gpus[] = {
    {"A100", 80, 108, 166912, 41943040, 1410000, 1593000, 85899345920, 5120},
    {"H100", 90, 132, 232448, 52428800, 1980000, 2619000, 85029158912, 5120},
    {"H200", 90, 132, 232448, 52428800, 1980000, 3201000, 150000000000, 6144},
    {"B200", 100, 148, 232448, 132644864, 1980000, 3996000, 191000000000, 8192},
};

inline cuda::sdpa::Place place(const Gpu& g) {
  const auto pair = [](std::string_view key, int64_t value) {
    return "\"" + std::string(key) + "\":" + std::to_string(value) + ",";
  };
  std::string text = std::string("{\"deviceName\":\"NVIDIA ") + g.name + "\",";
  text += pair("deviceVer", g.arch * 10) + pair("cudaDeviceId", 0) + pair("driverVer", 13000) + pair("pciDeviceId", 0);
  text += "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],";
  text += pair("regsPerBlock", 65536) + pair("multiProcessorCount", g.processors) + pair("smClockRateKHz", g.clock) +
          pair("memClockRateKHz", g.memory_clock) + pair("l2CacheSize", g.l2) + pair("warpSize", 32);
  text += pair("maxSharedMemoryPerBlock", 49152) + pair("maxSharedMemoryPerBlockOptin", g.shared) +
          pair("reservedSharedMemoryPerBlock", 1024) + pair("maxRegistersPerSM", 65536) + pair("maxCtasPerSM", 32);
  text += pair("maxThreadsPerBlock", 1024) + pair("maxThreadsPerSM", 2048) + pair("isTccDriver", 0) +
          pair("supportCoopLaunch", 1) + pair("totalGlobalMem", g.memory) + pair("memoryBusWidth", g.bus) +
          pair("oversizedSharedMemoryPerBlock", g.shared);
  text.back() = '}';
  return {g.arch, g.processors, nullptr, text};
}

}  // namespace cudnn_test
