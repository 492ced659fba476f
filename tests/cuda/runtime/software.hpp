// SPDX-License-Identifier: Apache-2.0
// The software CUDA runtime: libcudart.so.13 for tests, on the CPU. Nothing here says anything about a GPU's speed or
// its driver.
//
// Its properties and faults come from the environment, read at the first call and by software_cuda_reset():
//   SOFTCUDA_CARD      h200 (default), a100, rtx4090, ...   SOFTCUDA_BYTES    memory of a card
//   SOFTCUDA_DEVICES   number of cards, 1 by default        SOFTCUDA_SEED     of the order of work on queues
//   CUDA_VISIBLE_DEVICES  numbers of those that this process sees; all, if it is not set
//   SOFTCUDA_DRIVER    none, old, compat (cuda-compat on a card that does not support it), or ok
//   SOFTCUDA_LAST      a stream that works only when no other can; then it does SOFTCUDA_AHEAD pieces more (0)
//   SOFTCUDA_FAIL      N: the Nth piece of work from now ends the context with an illegal address
//   SOFTCUDA_TWINS     a shared object with software_cuda_twin(): kernels compiled for the host, tests/cuda/twins
//
// With SOFTCUDA_PEAK = FILE the process writes at its end the most bytes that were allocated on each card.
//
// Work that was put on a stream is done only when somebody waits for it, in a random order that streams and events
// allow. So what is not ordered by the program is not in order here. Where a copy can begin, it has begun: its target
// holds no more than bytes of the value SOFTCUDA_FILL (0) until it ends.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "twin.hpp"

extern "C" {

// For other libraries in software. Puts work on a stream, or into its capture; `work` returns 0 or writes what is
// wrong, and then the context ends with an illegal address. It may be done several times, in a graph. Returns a
// cudaError_t.
int software_cuda_enqueue(cudaStream_t stream, int (*work)(const void* data, char* text, uint64_t text_bytes),
                          void (*drop)(const void* data), const void* data);
// True if all of these bytes lie in one allocation of a device.
int software_cuda_reaches(const void* address, uint64_t bytes);

// Drops the context and everything in it, and reads the environment again.
void software_cuda_reset(void);
// Bytes allocated now: on the cards, and pinned.
uint64_t software_cuda_bytes(int pinned);
// Pieces of work done, graphs launched.
uint64_t software_cuda_work(void);
uint64_t software_cuda_graphs(void);
}
