// SPDX-License-Identifier: Apache-2.0
// Begins and ends a launch in a plugin whose kernels run on a device of another plugin: all that it knows of the device
// is the stream.
#include <cuda_runtime_api.h>

#include "../error.hpp"
#include "launch.hpp"

namespace cuda {
namespace {

void check(cudaError_t error, const char* doing) {
  if (error != cudaSuccess)
    throw common::Error{ENG_INTERNAL,
                        std::string(doing) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")"};
}

}  // namespace

void enter(void*, const eng_exec& exec) {
  int wanted = 0, current = 0;
  check(cudaStreamGetDevice(static_cast<cudaStream_t>(exec.queue), &wanted), "finding the GPU of a queue");
  check(cudaGetDevice(&current), "finding the current GPU");
  if (wanted != current) check(cudaSetDevice(wanted), "selecting a GPU");
}
void finish(void*, const eng_exec& exec) {
  check(cudaGetLastError(), "launching");
  if (exec.flags & ENG_EXEC_SYNC) check(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.queue)), "running");
}

}  // namespace cuda
