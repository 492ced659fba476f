// SPDX-License-Identifier: Apache-2.0
// SOFTCUDA_TWINS: the kernels of the shipped plugins, compiled for the host, for the software CUDA runtime, which knows
// them by the names that nvcc gave them.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "plugins/common/cuda/glue.hpp"
#include "tests/cuda/runtime/twin.hpp"

namespace {

struct Twin : software_cuda_kernel {
  const emu::Kernel* kernel;
};

int run(const software_cuda_kernel* self, void* taken, const unsigned grid[3], const unsigned block[3],
        uint64_t shared_bytes, char* text, uint64_t text_bytes) {
  try {
    cuda::enter(nullptr, {});  // the order of threads
    emu::run(*static_cast<const Twin*>(self)->kernel, taken, {grid[0], grid[1], grid[2]},
             {block[0], block[1], block[2]}, shared_bytes);
    return 0;
  } catch (const std::exception& e) {
    const size_t n = std::min<size_t>(std::strlen(e.what()), text_bytes - 1);
    std::memcpy(text, e.what(), n), text[n] = 0;
    return 1;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const software_cuda_kernel* software_cuda_twin(const char* mangled) {
  static std::map<std::string, Twin> twins;  // the runtime asks under its lock
  const auto [it, is_new] = twins.try_emplace(mangled);
  if (is_new) {
    const emu::Kernel* kernel = emu::find(mangled);
    if (kernel) it->second = {{kernel->copy, kernel->drop, run}, kernel};
  }
  return it->second.kernel ? &it->second : nullptr;
}
