// SPDX-License-Identifier: Apache-2.0
// The kernels of plugins that ship, compiled for the host, for the software CUDA runtime: it asks for them by the names
// that nvcc gave them. SHIPPED_ORDER = forward, backward or random:SEED is the order of threads.
#include <cstdio>
#include <cstdlib>
#include <map>

#include <emulator.hpp>  // tests/cuda/emulator
#include "engine/kernel.h"
#include "tests/cuda/runtime/twin.hpp"

// The host side of kernel files is not called here.
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

void read_order() {
  const char* order = std::getenv("SHIPPED_ORDER");
  const std::string text = order ? order : "forward";
  emu::settings.order = text == "backward"           ? emu::Order::backward
                        : text.starts_with("random") ? emu::Order::random
                                                     : emu::Order::forward;
  if (text.starts_with("random:")) emu::settings.seed = std::strtoull(text.c_str() + 7, nullptr, 10);
}

}  // namespace

extern "C" const software_cuda_kernel* software_cuda_twin(const char* mangled) {
  static std::map<std::string, software_cuda_kernel> all;
  if (all.empty()) read_order();
  const auto known = all.find(mangled);
  if (known != all.end()) return &known->second;
  const emu::Kernel* kernel = emu::find(mangled);
  if (!kernel) return nullptr;
  const software_cuda_kernel twin = {kernel, [](const void* self, void** args) { return of(self).copy(args); },
                                     [](const void* self, void* taken) { of(self).drop(taken); }, run};
  return &all.emplace(mangled, twin).first->second;
}
