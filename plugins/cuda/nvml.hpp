// SPDX-License-Identifier: Apache-2.0
// The part of NVIDIA's management library (libnvidia-ml.so.1, a part of the driver) that is used: the functions and
// structs that NVIDIA's documentation gives for it. It is loaded when it is needed, for most machines that build this
// have none.
#pragma once

#include <dlfcn.h>

namespace cuda::nvml {

using Device = struct Handle*;

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;  // percent of the last sample
};
struct Process {
  unsigned pid;
  unsigned long long memory;  // ~0: not told
  unsigned gpu_instance, compute_instance;
};

constexpr int ok = 0, too_small = 7;
constexpr unsigned clock_sm = 1, clock_memory = 2;  // kinds of clocks
constexpr unsigned most_links = 18;

// A function under a name, of the type that is asked for; NULL where the library is missing, or too old to have it.
struct Symbol {
  void* library;
  const char* name;
  template <class F>
  operator F*() const {
    return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
  }
};

class Library {
  void* const handle_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Symbol find(const char* name) const { return {handle_, name}; }

 public:
  Library() = default;
  ~Library() {
    if (here) shutdown();
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  int (*const init)() = find("nvmlInit_v2");
  int (*const shutdown)() = find("nvmlShutdown");
  int (*const driver_version)(char*, unsigned) = find("nvmlSystemGetDriverVersion");
  int (*const count)(unsigned*) = find("nvmlDeviceGetCount_v2");
  int (*const by_bus)(const char*, Device*) = find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*const memory)(Device, Memory*) = find("nvmlDeviceGetMemoryInfo");
  int (*const utilization)(Device, Utilization*) = find("nvmlDeviceGetUtilizationRates");
  int (*const clock)(Device, unsigned, unsigned*) = find("nvmlDeviceGetClockInfo");  // MHz
  int (*const most_clock)(Device, unsigned, unsigned*) = find("nvmlDeviceGetMaxClockInfo");
  int (*const ecc)(Device, unsigned*, unsigned*) = find("nvmlDeviceGetEccMode");  // now, and after the next start
  int (*const ecc_errors)(Device, unsigned, unsigned, unsigned long long*) = find("nvmlDeviceGetTotalEccErrors");
  int (*const mig)(Device, unsigned*, unsigned*) = find("nvmlDeviceGetMigMode");
  int (*const temperature)(Device, unsigned, unsigned*) = find("nvmlDeviceGetTemperature");
  int (*const power)(Device, unsigned*) = find("nvmlDeviceGetPowerUsage");  // mW
  int (*const most_power)(Device, unsigned*) = find("nvmlDeviceGetEnforcedPowerLimit");
  int (*const link_state)(Device, unsigned, unsigned*) = find("nvmlDeviceGetNvLinkState");
  int (*const link_version)(Device, unsigned, unsigned*) = find("nvmlDeviceGetNvLinkVersion");
  int (*const processes)(Device, unsigned*, Process*) = find("nvmlDeviceGetComputeRunningProcesses_v3");
  int (*const process_name)(unsigned, char*, unsigned) = find("nvmlSystemGetProcessName");

  // True if the library can be used: from here to the destructor. Not without a driver.
  const bool here = init && shutdown && init() == ok;

  // A number that this GPU and this driver tell.
  template <class T = unsigned, class F, class... A>
  static bool get(T& out, F function, A... args) {
    return function && function(args..., &out) == ok;
  }
};

}  // namespace cuda::nvml
