// SPDX-License-Identifier: Apache-2.0
// What of NVIDIA's management library (libnvidia-ml.so.1, a part of the driver) is asked: the functions and structs
// that NVIDIA's documentation gives for it. It is loaded when it is needed, for most machines that build this have
// none.
#pragma once

#include <cstdint>

namespace cuda::nvml {

using Device = struct Handle*;

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long memory;  // ~0: not told
  unsigned gpu_instance, compute_instance;
};

constexpr int ok = 0, too_small = 7;
constexpr unsigned clock_sm = 1, clock_memory = 2;  // kinds of clocks
constexpr unsigned most_links = 18;

// One of them is NULL where the driver is too old to have it.
struct Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_bus)(const char*, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*clock)(Device, unsigned, unsigned*) = nullptr;  // MHz
  int (*most_clock)(Device, unsigned, unsigned*) = nullptr;
  int (*ecc)(Device, unsigned*, unsigned*) = nullptr;  // now, and after the next start
  int (*ecc_errors)(Device, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*mig)(Device, unsigned*, unsigned*) = nullptr;
  int (*temperature)(Device, unsigned, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // mW
  int (*most_power)(Device, unsigned*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_version)(Device, unsigned, unsigned*) = nullptr;
  int (*processes)(Device, unsigned*, Process*) = nullptr;
  int (*process_name)(unsigned, char*, unsigned) = nullptr;
};

}  // namespace cuda::nvml
