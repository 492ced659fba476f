// SPDX-License-Identifier: Apache-2.0
// Arenas, pinned memory of the host, and copies that return when they are done.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "device.hpp"

namespace cuda {
namespace {

// The driver gives memory in such steps, and aligns allocations of this size to it; smaller ones only to 256 bytes.
constexpr uint64_t step = uint64_t{2} << 20;
constexpr uint64_t page = 4096;
constexpr uint64_t most = uint64_t{1} << 62;

uint64_t in_whole(uint64_t unit, uint64_t bytes) {
  return std::max<uint64_t>((bytes + unit - 1) / unit, 1) * unit;
}

std::string amount(uint64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

void* alloc_device(Device& d, uint64_t bytes) {
  void* out = nullptr;
  const std::string arena = "an arena of " + std::to_string(bytes) + " bytes";
  const cudaError_t error = bytes < most ? cudaMalloc(&out, in_whole(step, bytes)) : cudaErrorMemoryAllocation;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    worked(cudaMemGetInfo(&free, &total));
    throw Error{ENG_NO_MEMORY, arena + " does not fit into GPU " + std::to_string(d.index) + ", " + d.properties.name +
                                   ": " + amount(free) + " of " + amount(total) +
                                   " are free. Other programs may use the rest: see nvidia-smi; what needs less memory "
                                   "here: engine plan --fit"};
  }
  d.check(error, "allocating " + arena);
  std::unique_ptr<void, decltype(&cudaFree)> held(out, cudaFree);
  if (reinterpret_cast<uintptr_t>(out) % page) throw Error{ENG_INTERNAL, "cudaMalloc aligns to less than 4096 bytes"};
  d.check(cudaMemset(out, 0, in_whole(step, bytes)), "zeroing an arena");
  d.check(cudaDeviceSynchronize(), "zeroing an arena");
  return held.release();
}

// The driver aligns pinned memory to 256 bytes. An arena begins with a page, and before it lies what the driver gave.
void* alloc_pinned(Device& d, uint64_t bytes) {
  void* given = nullptr;
  const std::string what = std::to_string(bytes) + " bytes of pinned host memory";
  const cudaError_t error = bytes < most ? cudaHostAlloc(&given, page + in_whole(page, bytes), cudaHostAllocPortable)
                                         : cudaErrorMemoryAllocation;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error{ENG_NO_MEMORY, "no " + what};
  }
  d.check(error, "allocating " + what);
  char* const arena = static_cast<char*>(given) + (page - reinterpret_cast<uintptr_t>(given) % page);
  reinterpret_cast<void**>(arena)[-1] = given;
  return std::memset(arena, 0, in_whole(page, bytes));
}

void* alloc_host(uint64_t bytes) {
  void* out = bytes < most ? std::aligned_alloc(page, in_whole(page, bytes)) : nullptr;
  if (!out) throw Error{ENG_NO_MEMORY, "no " + std::to_string(bytes) + " bytes of host memory"};
  return std::memset(out, 0, in_whole(page, bytes));
}

eng_status alloc(void* self, int32_t memory, uint64_t bytes, void** out, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    if (memory < ENG_MEMORY_DEVICE || memory > ENG_MEMORY_HOST)
      throw Error{ENG_INVALID, "there is no memory of kind " + std::to_string(memory)};
    *out = memory == ENG_MEMORY_DEVICE   ? alloc_device(d, bytes)
           : memory == ENG_MEMORY_PINNED ? alloc_pinned(d, bytes)
                                         : alloc_host(bytes);
  });
}

// Nothing can be reported here. After an error that ended the context, the driver has taken the memory back already.
void release(void* self, int32_t memory, void* arena, uint64_t) {
  if (memory == ENG_MEMORY_HOST) return std::free(arena);
  quietly(self, [&] { memory == ENG_MEMORY_DEVICE ? cudaFree(arena) : cudaFreeHost(static_cast<void**>(arena)[-1]); });
}

eng_status upload(void* self, void* dst, const void* src, uint64_t bytes, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    if (bytes == 0) return;
    d.check(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), "copying " + std::to_string(bytes) + " bytes");
    // From pageable memory the call may return before the last bytes are on the device.
    d.check(cudaStreamSynchronize(nullptr), "copying to the device");
  });
}

eng_status download(void* self, void* dst, const void* src, uint64_t bytes, eng_error* sink) {
  return upload(self, dst, src, bytes, sink);
}

eng_status pin(void* self, void* address, uint64_t bytes, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    const cudaError_t error = bytes ? cudaHostRegister(address, bytes, cudaHostRegisterPortable) : cudaSuccess;
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw Error{ENG_NO_MEMORY,
                  "the system does not lock " + std::to_string(bytes) + " bytes of host memory: see `ulimit -l`"};
    }
    d.check(error, "pinning " + std::to_string(bytes) + " bytes of host memory");
  });
}

void unpin(void* self, void* address, uint64_t bytes) {
  if (bytes) quietly(self, [&] { cudaHostUnregister(address); });
}

}  // namespace

void add_memory(eng_device& t) {
  t.alloc = alloc, t.free = release;
  t.upload = upload, t.download = download;
  t.pin = pin, t.unpin = unpin;
}

}  // namespace cuda
