// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 for tests: what it says of the cards that the software CUDA runtime announces. SOFTCUDA_HIDDEN:
// that many more are on the machine. SOFTCUDA_ECC: errors that were not corrected. SOFTCUDA_MIG: a part of a card,
// which tells its memory alone. SOFTCUDA_NVML: "none" does not start, "broken" fails every question.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int ok = 0, driver_not_loaded = 9, not_supported = 3, not_found = 6;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}
bool is(const char* name, const char* text) {
  const char* set = std::getenv(name);
  return set && std::strcmp(set, text) == 0;
}
// Visible or not.
int cards() {
  return std::getenv("SOFTCUDA_DEVICES") ? number("SOFTCUDA_DEVICES") : 1;
}
int partly() {
  return number("SOFTCUDA_MIG") || is("SOFTCUDA_NVML", "broken") ? not_supported : ok;
}
constexpr int any = 0;  // visible device: all cards are alike
int index_of(const void* gpu) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(gpu)) - 1;
}

}  // namespace

extern "C" {
#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() {
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  cudaGetLastError();
  return error == cudaErrorInsufficientDriver || is("SOFTCUDA_NVML", "none") ? driver_not_loaded : ok;
}
EXPORT int nvmlShutdown() {
  return ok;
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  std::snprintf(text, room, "software");
  return ok;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = static_cast<unsigned>(cards() + number("SOFTCUDA_HIDDEN"));
  return ok;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** gpu) {
  unsigned device = 0;
  if (std::sscanf(bus, "0000:%x:00.0", &device) != 1) return not_found;
  *gpu = reinterpret_cast<void*>(uintptr_t{device});
  return ok;
}
EXPORT int nvmlDeviceGetMemoryInfo(void* gpu, Memory* memory) {
  cudaDeviceProp p;
  if (index_of(gpu) >= cards() || is("SOFTCUDA_NVML", "broken") || cudaGetDeviceProperties(&p, any) != cudaSuccess)
    return not_found;
  *memory = {p.totalGlobalMem, p.totalGlobalMem / 4 * 3, p.totalGlobalMem / 4};
  return ok;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void*, unsigned kind, unsigned* mhz) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, kind == 2 ? cudaDevAttrMemoryClockRate : cudaDevAttrClockRate, any))
    return not_supported;
  *mhz = static_cast<unsigned>(value / 1000);
  return ok;
}
EXPORT int nvmlDeviceGetClockInfo(void*, unsigned, unsigned* mhz) {
  *mhz = 345;
  return ok;
}
EXPORT int nvmlDeviceGetUtilizationRates(void*, Utilization* out) {
  *out = {96, 41};
  return partly();
}
EXPORT int nvmlDeviceGetTemperature(void*, unsigned sensor, unsigned* degrees) {
  *degrees = 78;
  return sensor ? not_supported : partly();
}
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 352500;
  return partly();
}
EXPORT int nvmlDeviceGetEccMode(void*, unsigned* now, unsigned* next) {
  *now = 1, *next = number("SOFTCUDA_ECC") ? 0 : 1;
  return ok;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void*, unsigned, unsigned, unsigned long long* errors) {
  *errors = static_cast<unsigned long long>(number("SOFTCUDA_ECC"));
  return ok;
}
EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* on) {
  *on = link < 4;
  return link < 6 ? ok : not_supported;
}
EXPORT int nvmlDeviceGetNvLinkVersion(void*, unsigned, unsigned* version) {
  *version = 4;
  return ok;
}
// The first GPU is used by one process, the second by more than a caller has room for at first, others by none.
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, Process* all) {
  const unsigned many = index_of(gpu) == 0 ? 1 : index_of(gpu) == 1 ? 70 : 0, room = *count;
  *count = many;
  if (many > room) return 7;
  for (unsigned k = 0; k < many; ++k) all[k] = {4000 + k, k ? ~0ull : 3ull << 29, 0, 0};
  return ok;
}
EXPORT int nvmlSystemGetProcessName(unsigned pid, char* text, unsigned room) {
  std::snprintf(text, room, "train-%u", pid);
  return pid < 4002 ? ok : not_found;
}
}
