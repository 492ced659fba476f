// SPDX-License-Identifier: Apache-2.0
// The description of this machine's GPUs that `engine doctor` prints: those that this process sees, by the CUDA
// runtime; what the driver's management library knows of them; and the libraries of CUDA. None of it makes a context.
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

std::string clocks(const nvml::Library& m, nvml::Device gpu) {
  std::string text;
  for (const auto& [name, kind] : {std::pair("clocks: processors", nvml::clock_sm), {"memory", nvml::clock_memory}}) {
    unsigned now = 0, most = 0;
    if (!m.get(now, m.clock, gpu, kind)) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(now);
    if (m.get(most, m.most_clock, gpu, kind)) text += " of " + std::to_string(most);
    text += " MHz";
  }
  unsigned degrees = 0, power = 0, most = 0;
  if (m.get(degrees, m.temperature, gpu, 0u)) text += "; " + std::to_string(degrees) + " C";
  if (m.get(power, m.power, gpu)) {
    text += "; " + std::to_string(power / 1000);
    if (m.get(most, m.most_power, gpu)) text += " of " + std::to_string(most / 1000);
    text += " W";
  }
  return text;
}

std::string ecc(const nvml::Library& m, nvml::Device gpu) {
  unsigned now = 0, next = 0;
  if (!m.ecc || m.ecc(gpu, &now, &next) != nvml::ok) return "ECC: it has none";
  std::string text = now ? "ECC: on" : "ECC: off";
  if (now != next) text += next ? ", on after the next start" : ", off after the next start";
  unsigned long long errors = 0;
  // Counts the uncorrected errors since the driver was loaded.
  if (now && m.get(errors, m.ecc_errors, gpu, 1u, 0u))
    text += ", " + std::to_string(errors) + " uncorrected errors" + (errors ? ": its results cannot be trusted" : "");
  if (m.mig && m.mig(gpu, &now, &next) == nvml::ok && now) text += "; MIG on";
  return text;
}

std::string links(const nvml::Library& m, nvml::Device gpu) {
  unsigned active = 0, version = 0;
  for (unsigned k = 0; k < nvml::most_links; ++k) {
    unsigned on = 0;
    if (!m.get(on, m.link_state, gpu, k) || !on) continue;
    ++active, m.get(version, m.link_version, gpu, k);
  }
  if (!active) return "NVLink: no active link";
  return "NVLink: " + std::to_string(active) + " active links" +
         (version ? " of version " + std::to_string(version) : "");
}

std::string users(const nvml::Library& m, nvml::Device gpu) {
  std::vector<nvml::Process> all(64);
  int error = nvml::too_small;
  auto count = static_cast<unsigned>(all.size());
  for (int k = 0; m.processes && k < 4 && error == nvml::too_small; ++k) {
    all.resize(std::max<size_t>(all.size(), count) * (k ? 2 : 1));
    count = static_cast<unsigned>(all.size());
    error = m.processes(gpu, &count, all.data());
  }
  if (error != nvml::ok) return "in use by: unknown";
  if (!count) return "in use by: nobody";
  std::string text = "in use by:";
  for (unsigned k = 0; k < count; ++k) {
    std::array<char, 128> name{};
    if (!m.process_name || m.process_name(all[k].pid, name.data(), name.size() - 1) != nvml::ok)
      std::strcpy(name.data(), "name unknown");
    text += (k ? ", process " : " process ") + std::to_string(all[k].pid) + " (" + name.data();
    if (all[k].memory != ~0ull) text += ", " + gib(all[k].memory);
    text += ")";
  }
  return text;
}

std::string of_gpu(const nvml::Library& m, int index) {
  const cudaDeviceProp p = properties_of(index);
  std::array<char, 32> bus{};
  worked(cudaDeviceGetPCIBusId(bus.data(), bus.size() - 1, index));
  std::string text = "GPU " + std::to_string(index) + ": " + text_of(p) + ", PCI " + bus.data() +
                     (arch_of(p) < 80 ? "; too old: kernels need sm_80 or later" : "") + "\n";
  nvml::Device gpu = nullptr;
  if (!m.here || !m.get(gpu, m.by_bus, bus.data()))
    return text + "  memory: " + gib(p.totalGlobalMem) + "; libnvidia-ml.so.1 tells nothing more\n";
  nvml::Memory memory{};
  text += "  memory: " + gib(p.totalGlobalMem);
  if (m.get(memory, m.memory, gpu)) text += ", " + gib(memory.free) + " free";
  text += "\n";
  if (const std::string line = clocks(m, gpu); !line.empty()) text += "  " + line + "\n";
  return text + "  " + ecc(m, gpu) + "\n  " + links(m, gpu) + "\n  " + users(m, gpu) + "\n";
}

std::string here() {
  const nvml::Library m;
  std::string why, text;
  const int count = device_count(why);
  if (count == 0) text = "no GPU can be used: " + why + "\n";
  const auto [driver, runtime] = versions();
  std::array<char, 96> version{};
  if (!driver.empty())
    text += std::string("driver: ") +
            (m.here && m.driver_version && m.driver_version(version.data(), version.size() - 1) == nvml::ok
                 ? version.data()
                 : "version unknown") +
            ", for CUDA " + driver + "; this build needs " + runtime + "\n";
  for (int k = 0; k < count; ++k) text += of_gpu(m, k);
  unsigned all = 0;
  if (m.here && m.get(all, m.count) && all > static_cast<unsigned>(count))
    text += std::to_string(all - static_cast<unsigned>(count)) +
            " more of this machine's GPUs are not visible here: see CUDA_VISIBLE_DEVICES\n";
  return text + libraries();
}

eng_status inspect(const eng_options*, char* text, uint64_t capacity, uint64_t* size, eng_error* sink) {
  return guarded(sink, device_name, [&] { put_text(here(), text, capacity, size); });
}

}  // namespace

void add_inspect(eng_device& t) {
  t.inspect = inspect;
}

}  // namespace cuda
