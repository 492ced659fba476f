// SPDX-License-Identifier: Apache-2.0
// What `engine doctor` prints of this machine's GPUs: those that this process sees, by the CUDA runtime; and what the
// driver's management library knows of them. Neither makes a context.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "device.hpp"
#include "nvml.hpp"

namespace cuda {
namespace {

std::string gib(uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text.data();
}

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

// The management library, between init and shutdown; `here` is false without a driver.
class Management {
 public:
  Management() : handle_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) return;
    find(handle_, "nvmlInit_v2", l.init), find(handle_, "nvmlShutdown", l.shutdown);
    find(handle_, "nvmlSystemGetDriverVersion", l.driver_version);
    find(handle_, "nvmlDeviceGetCount_v2", l.count);
    find(handle_, "nvmlDeviceGetHandleByPciBusId_v2", l.by_bus);
    find(handle_, "nvmlDeviceGetMemoryInfo", l.memory);
    find(handle_, "nvmlDeviceGetClockInfo", l.clock), find(handle_, "nvmlDeviceGetMaxClockInfo", l.most_clock);
    find(handle_, "nvmlDeviceGetEccMode", l.ecc), find(handle_, "nvmlDeviceGetTotalEccErrors", l.ecc_errors);
    find(handle_, "nvmlDeviceGetMigMode", l.mig);
    find(handle_, "nvmlDeviceGetTemperature", l.temperature);
    find(handle_, "nvmlDeviceGetPowerUsage", l.power), find(handle_, "nvmlDeviceGetEnforcedPowerLimit", l.most_power);
    find(handle_, "nvmlDeviceGetNvLinkState", l.link_state);
    find(handle_, "nvmlDeviceGetNvLinkVersion", l.link_version);
    find(handle_, "nvmlDeviceGetComputeRunningProcesses_v3", l.processes);
    find(handle_, "nvmlSystemGetProcessName", l.process_name);
    here = l.init && l.shutdown && l.init() == nvml::ok;
  }
  ~Management() {
    if (here) l.shutdown();
    if (handle_) dlclose(handle_);
  }
  Management(const Management&) = delete;
  Management& operator=(const Management&) = delete;

  // A number that this GPU and this driver tell.
  template <class T = unsigned, class F, class... A>
  static bool get(T& out, F function, A... args) {
    return function && function(args..., &out) == nvml::ok;
  }

  nvml::Library l;
  bool here = false;

 private:
  void* handle_;
};

std::string clocks(const Management& m, nvml::Device gpu) {
  std::string text;
  for (const auto& [name, kind] : {std::pair("clocks: processors", nvml::clock_sm), {"memory", nvml::clock_memory}}) {
    unsigned now = 0, most = 0;
    if (!m.get(now, m.l.clock, gpu, kind)) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(now);
    if (m.get(most, m.l.most_clock, gpu, kind)) text += " of " + std::to_string(most);
    text += " MHz";
  }
  unsigned degrees = 0, power = 0, most = 0;
  if (m.get(degrees, m.l.temperature, gpu, 0u)) text += "; " + std::to_string(degrees) + " C";
  if (m.get(power, m.l.power, gpu)) {
    text += "; " + std::to_string(power / 1000);
    if (m.get(most, m.l.most_power, gpu)) text += " of " + std::to_string(most / 1000);
    text += " W";
  }
  return text;
}

std::string ecc(const Management& m, nvml::Device gpu) {
  unsigned now = 0, next = 0;
  if (!m.l.ecc || m.l.ecc(gpu, &now, &next) != nvml::ok) return "ECC: it has none";
  std::string text = now ? "ECC: on" : "ECC: off";
  if (now != next) text += next ? ", on after the next start" : ", off after the next start";
  unsigned long long errors = 0;
  // Those that were not corrected, since the driver was loaded.
  if (now && m.get(errors, m.l.ecc_errors, gpu, 1u, 0u))
    text += ", " + std::to_string(errors) + " uncorrected errors" + (errors ? ": its results cannot be trusted" : "");
  if (m.l.mig && m.l.mig(gpu, &now, &next) == nvml::ok && now) text += "; MIG on";
  return text;
}

std::string links(const Management& m, nvml::Device gpu) {
  unsigned active = 0, version = 0;
  for (unsigned k = 0; k < nvml::most_links; ++k) {
    unsigned on = 0;
    if (!m.get(on, m.l.link_state, gpu, k) || !on) continue;
    ++active, m.get(version, m.l.link_version, gpu, k);
  }
  if (!active) return "NVLink: no active link";
  return "NVLink: " + std::to_string(active) + " active links" +
         (version ? " of version " + std::to_string(version) : "");
}

std::string users(const Management& m, nvml::Device gpu) {
  std::vector<nvml::Process> all(64);
  int error = nvml::too_small;
  auto count = static_cast<unsigned>(all.size());
  for (int k = 0; m.l.processes && k < 4 && error == nvml::too_small; ++k) {
    all.resize(std::max<size_t>(all.size(), count) * (k ? 2 : 1));
    count = static_cast<unsigned>(all.size());
    error = m.l.processes(gpu, &count, all.data());
  }
  if (error != nvml::ok) return "in use by: unknown";
  if (!count) return "in use by: nobody";
  std::string text = "in use by:";
  for (unsigned k = 0; k < count; ++k) {
    std::array<char, 128> name{};
    if (!m.l.process_name || m.l.process_name(all[k].pid, name.data(), name.size() - 1) != nvml::ok)
      std::strcpy(name.data(), "name unknown");
    text += (k ? ", process " : " process ") + std::to_string(all[k].pid) + " (" + name.data();
    if (all[k].memory != ~0ull) text += ", " + gib(all[k].memory);
    text += ")";
  }
  return text;
}

std::string of_gpu(const Management& m, int index) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, index), "reading the properties of the GPU");
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), bus.size() - 1, index) != cudaSuccess) cudaGetLastError();
  const uint32_t arch = arch_of(p);
  std::string text = "GPU " + std::to_string(index) + ": " + p.name + ", sm_" + std::to_string(arch) + ", " +
                     std::to_string(p.multiProcessorCount) + " processors, PCI " + bus.data() +
                     (arch < 80 ? "; too old: kernels need sm_80 or later" : "") + "\n";
  nvml::Device gpu = nullptr;
  if (!m.here || !m.get(gpu, m.l.by_bus, bus.data()))
    return text + "  memory: " + gib(p.totalGlobalMem) + "; libnvidia-ml.so.1 tells nothing more\n";
  nvml::Memory memory{};
  text += "  memory: " + gib(p.totalGlobalMem);
  if (m.get(memory, m.l.memory, gpu)) text += ", " + gib(memory.free) + " free";
  text += "\n";
  if (const std::string line = clocks(m, gpu); !line.empty()) text += "  " + line + "\n";
  return text + "  " + ecc(m, gpu) + "\n  " + links(m, gpu) + "\n  " + users(m, gpu) + "\n";
}

std::string here() {
  const Management m;
  int count = 0, driver = 0, runtime = 0;
  std::string text;
  try {
    count = device_count();
  } catch (const Error& e) {
    text = "no GPU can be used: " + e.text + "\n";
  }
  if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError(), driver = 0;
  cudaRuntimeGetVersion(&runtime);
  std::array<char, 96> version{};
  if (driver)
    text += std::string("driver: ") +
            (m.here && m.l.driver_version && m.l.driver_version(version.data(), version.size() - 1) == nvml::ok
                 ? version.data()
                 : "version unknown") +
            ", for CUDA " + version_text(driver) + "; this build needs " + version_text(runtime) + "\n";
  for (int k = 0; k < count; ++k) text += of_gpu(m, k);
  unsigned all = 0;
  if (m.here && m.get(all, m.l.count) && all > static_cast<unsigned>(count))
    text += std::to_string(all - static_cast<unsigned>(count)) +
            " more of this machine's GPUs are not visible here: see CUDA_VISIBLE_DEVICES\n";
  return text;
}

eng_status inspect(const eng_options*, char* text, uint64_t capacity, uint64_t* size, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    const std::string all = here();
    *size = all.size();
    std::memcpy(text, all.data(), std::min<uint64_t>(all.size(), capacity));
  });
}

}  // namespace

void add_inspect(eng_device& t) {
  t.inspect = inspect;
}

}  // namespace cuda
