// SPDX-License-Identifier: Apache-2.0
// Finds the emulated kernel for a name, and gives it the form that the software CUDA runtime calls.
#include <cstdio>
#include <emulator.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/kernel.h"

// As in tests/cuda/runtime/software.hpp, which includes CUDA's own names for what the emulator defines.
struct software_cuda_kernel {
  const void* self;
  void* (*take)(const void* self, void** args);
  void (*drop)(const void* self, void* taken);
  int (*run)(const void* self, void* taken, const unsigned grid[3], const unsigned block[3], uint64_t shared_bytes,
             char* text, uint64_t text_bytes);
};

// The files of the kernels name these. What calls them is the plugin's own half.
namespace cuda {
void enter(void*, const eng_exec&) {}
void finish(void*, const eng_exec&) {}
}  // namespace cuda

namespace {

const emu::Kernel& of(const void* self) {
  return *static_cast<const emu::Kernel*>(self);
}

int run(const void* self, void* taken, const unsigned grid[3], const unsigned block[3], uint64_t shared_bytes,
        char* text, uint64_t text_bytes) {
  try {
    emu::run(of(self), taken, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared_bytes);
    return 0;
  } catch (const std::exception& e) {
    std::snprintf(text, text_bytes, "%s", e.what());
    return 1;
  }
}

}  // namespace

extern "C" const software_cuda_kernel* software_cuda_twin(const char* mangled) {
  static std::mutex lock;
  static std::map<std::string, std::unique_ptr<software_cuda_kernel>> made;
  const std::lock_guard held(lock);
  auto& one = made[mangled];
  if (one) return one.get();
  const emu::Kernel* kernel = emu::find(mangled);
  if (!kernel) return nullptr;
  one.reset(new software_cuda_kernel{kernel, [](const void* self, void** args) { return of(self).copy(args); },
                                     [](const void* self, void* taken) { of(self).drop(taken); }, run});
  return one.get();
}
