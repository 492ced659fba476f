// SPDX-License-Identifier: Apache-2.0
// Gives kernels to the software CUDA runtime. Without any header of CUDA, which the emulator stands for.
#pragma once

#include <cstdint>

extern "C" {

// `take` copies the arguments of a launch, as the runtime does. `run` returns 0, or writes what is wrong.
struct software_cuda_kernel {
  void* (*take)(void** args);
  void (*drop)(void* taken);
  int (*run)(const software_cuda_kernel* self, void* taken, const unsigned grid[3], const unsigned block[3],
             uint64_t shared_bytes, char* text, uint64_t text_bytes);
};
// By mangled name; NULL: there is none. Exported by the object that SOFTCUDA_TWINS names.
using software_cuda_twin_fn = const software_cuda_kernel* (*)(const char* mangled);
}
