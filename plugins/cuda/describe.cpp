// SPDX-License-Identifier: Apache-2.0
// Describes the device: from the properties of the GPU that is here, or for a described card from its name, without any
// GPU or driver.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "blas.hpp"
#include "device.hpp"

namespace cuda {
namespace {

// Properties of a card that kernels need and that the engine's own description of it lacks.
struct Known {
  std::string_view describe;  // [device] describe
  uint32_t arch, processors;
};
constexpr Known known[] = {
    {"a100-40g", 80, 108}, {"a100-80g", 80, 108}, {"a800-80g", 80, 108}, {"rtx3090", 86, 82},
    {"rtx4090", 89, 128},  {"l40s", 89, 142},     {"h100-80g", 90, 132}, {"h200", 90, 132},
    {"b200", 100, 148},    {"rtx5090", 120, 170}, {"v100-32g", 70, 80},
};
// For a card that is described by a file or by its amount of memory.
constexpr Known unknown = {"", 80, 108};

// Host memory of the engine's process: as on the cpu device, and what libcublasLt.so.13 takes when it is loaded,
// measured without a GPU (94 MB of it are written while it is linked, the rest is code). What the driver takes is not
// known.
constexpr uint64_t overhead = 14'340'000 + 151'500'000;
constexpr uint64_t device_overhead = uint64_t{1} << 30;  // the driver's context and libraries: assumed, not measured

// FLOP per clock of one processor, dense, with sums in f32; bytes/s between host and card (assumed by generation).
struct Rates {
  uint32_t arch;
  double f32, bf16, host;
};
constexpr Rates rates[] = {{80, 128, 2048, 32e9},  {86, 256, 512, 32e9},  {87, 256, 512, 32e9},
                           {89, 256, 512, 32e9},   {90, 256, 4096, 64e9}, {100, 256, 8192, 64e9},
                           {103, 256, 8192, 64e9}, {120, 256, 1024, 64e9}};

double attribute(cudaDeviceAttr what, int index) {
  int value = 0;
  return worked(cudaDeviceGetAttribute(&value, what, index)) ? std::max(value, 0) : 0;
}

void set_name(eng_device_info& info, std::string_view name) {
  std::memcpy(info.name, name.data(), std::min(name.size(), sizeof info.name - 1));
}

void from_card(std::string_view name, eng_device_info& info) {
  const auto* card =
      std::find_if(std::begin(known), std::end(known), [&](const Known& k) { return k.describe == name; });
  const Known& k = card == std::end(known) ? unknown : *card;
  info.arch = k.arch, info.parallel = k.processors;
  set_name(info, name);
}

void from_gpu(int index, eng_device_info& info) {
  const cudaDeviceProp p = properties_of(index);
  info.dl_device_id = index;
  info.total_bytes = p.totalGlobalMem;
  info.arch = arch_of(p);
  info.parallel = static_cast<uint32_t>(std::max(p.multiProcessorCount, 1));
  const double clock = attribute(cudaDevAttrClockRate, index) * 1e3,
               memory_clock = attribute(cudaDevAttrMemoryClockRate, index) * 1e3;
  info.memory_bandwidth = 2 * memory_clock * p.memoryBusWidth / 8;
  for (const Rates& r : rates)
    if (r.arch == info.arch) {
      info.peak_f32 = r.f32 * clock * info.parallel, info.peak_bf16 = r.bf16 * clock * info.parallel;
      info.to_device = info.to_host = r.host;
    }
  set_name(info, p.name);
}

eng_status describe_device(const eng_options* options, eng_device_info* out, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    const Options own = options_of(options);
    eng_device_info info{};
    info.struct_size = out->struct_size;
    // Launches are not captured where each is waited for.
    info.flags = ENG_DEVICE_ASYNC | (own.synchronous ? 0u : ENG_DEVICE_GRAPHS);
    info.parallel = 1;
    info.dl_device_type = kDLCUDA;
    info.overhead_bytes = overhead, info.device_overhead_bytes = device_overhead;
    std::string why;
    if (!own.describe.empty())
      from_card(own.describe, info);
    else if (device_count(why) > 0)
      from_gpu(0, info);
    else
      from_card({}, info), set_name(info, "none: " + why.substr(0, why.find(':')));
    info.parallel_beside = info.parallel;
    info.settings[workspace_setting] = own.workspace;
    info.settings[library::loss_chunk_setting] = own.loss_chunk;
    put(own.attention, info);
    std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof info));
  });
}

}  // namespace

void add_describe(eng_device& t) {
  t.describe = describe_device;
}

}  // namespace cuda
