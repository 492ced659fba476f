// SPDX-License-Identifier: Apache-2.0
// Devices, memory and copies of the software CUDA runtime.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "state.hpp"

using namespace softcuda;

namespace {

#define LOCK const std::lock_guard lock(state().lock)

bool is_visible(int device) {
  return device >= 0 && device < static_cast<int>(state().visible.size());
}
// From 0, of this machine.
int card_of(int device) {
  return state().visible[static_cast<size_t>(device)];
}

// The offset of an allocation in its first page. Pinned memory of a real driver is not aligned to pages.
size_t offset_of(Kind kind) {
  return kind == Kind::pinned ? 512 : 0;
}

// Between two pages that nobody may touch.
void* take(size_t bytes, Kind kind) {
  const size_t offset = offset_of(kind), room = (offset + bytes + 4095) / 4096 * 4096, mapped = room + 8192;
  void* all = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* p = static_cast<char*>(all) + 4096;
  if (mprotect(p, room, PROT_READ | PROT_WRITE)) return munmap(all, mapped), nullptr;
  state().memory[p + offset] = {bytes, mapped, kind, current};
  return p + offset;
}

cudaError_t drop(void* p, Kind kind) {
  if (!p) return usable();
  State& s = state();
  const auto it = s.memory.find(static_cast<char*>(p));
  if (it == s.memory.end() || it->second.kind != kind) return cudaErrorInvalidValue;
  const int device = it->second.device;
  const cudaError_t error = pump([&] { return all_idle(device); });
  if (kind != Kind::registered) munmap(it->first - 4096 - offset_of(kind), it->second.mapped);
  if (kind == Kind::device) s.used[static_cast<size_t>(device)] -= it->second.bytes;
  s.memory.erase(it);
  return error;
}

// The fault in a copy; cudaSuccess if there is none.
cudaError_t refuse_copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, bool async) {
  bool whole_to = true, whole_from = true;
  const Range *a = range_of(to, n, &whole_to), *b = range_of(from, n, &whole_from);
  if (!whole_to || !whole_from) return complain("a copy reaches beyond an allocation"), cudaErrorInvalidValue;
  const bool to_device = a && a->kind == Kind::device, from_device = b && b->kind == Kind::device;
  const bool wrong = (kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
                     (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)) ||
                     (kind == cudaMemcpyDeviceToDevice && (!to_device || !from_device)) ||
                     (kind == cudaMemcpyHostToHost && (to_device || from_device));
  if (wrong) return complain("the direction of a copy is not that of its memory"), cudaErrorInvalidValue;
  // A real runtime would do it, and wait for it: that is never meant.
  if (async && (!a || !b)) return complain("an asynchronous copy of pageable memory"), cudaErrorInvalidValue;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  LOCK;
  *version = state().driver == State::none ? 0 : state().driver == State::old ? 12040 : 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  LOCK;
  *n = 0;
  if (state().driver != State::ok) return give(usable());
  if (state().visible.empty()) return give(cudaErrorNoDevice);
  *n = static_cast<int>(state().visible.size());
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  LOCK;
  if (!is_visible(device)) return give(cudaErrorInvalidDevice);
  current = device;
  return give(usable());
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  LOCK;
  if (!is_visible(device)) return give(cudaErrorInvalidDevice);
  const Card& c = state().card;
  std::memset(p, 0, sizeof *p);
  std::strncpy(p->name, (std::string("software CUDA runtime (CPU), as ") + c.name).c_str(), sizeof p->name - 1);
  std::memcpy(p->uuid.bytes, "software card", 13), p->uuid.bytes[15] = static_cast<char>(card_of(device));
  p->totalGlobalMem = c.bytes;
  p->major = c.major, p->minor = c.minor;
  p->multiProcessorCount = c.processors;
  p->memoryBusWidth = c.bus;
  p->warpSize = 32, p->maxThreadsPerBlock = 1024;
  p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = c.major == 8 && c.minor ? 101376
                                                            : c.major == 8          ? 166912
                                                                                    : 232448;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  LOCK;
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
  switch (what) {
    case cudaDevAttrClockRate:
      return *value = state().card.clock, cudaSuccess;
    case cudaDevAttrMemoryClockRate:
      return *value = state().card.memory_clock, cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      return *value = p.multiProcessorCount, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = p.major, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = p.minor, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(p.sharedMemPerBlockOptin), cudaSuccess;
    default:
      return give(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int device) {
  LOCK;
  if (!is_visible(device)) return give(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(room), "0000:%02x:00.0", card_of(device) + 1);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  *total = state().card.bytes;
  *free = *total - state().used[static_cast<size_t>(current)];
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  uint64_t& used = state().used[static_cast<size_t>(current)];
  if (bytes > state().card.bytes - used) return give(cudaErrorMemoryAllocation);
  void* p = take(bytes, Kind::device);
  if (!p) return give(cudaErrorMemoryAllocation);
  // Programs must not rely on zeros. Pages of a large arena stay untouched, else tests of large plans would need its
  // memory.
  std::memset(p, 0xff, bytes < (size_t{64} << 20) ? bytes : size_t{64} << 20);
  used += bytes;
  uint64_t& most = state().most[static_cast<size_t>(current)];
  most = std::max(most, used);
  *out = p;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  LOCK;
  return give(drop(p, Kind::device));
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  *out = take(bytes, Kind::pinned);
  return *out ? cudaSuccess : give(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  LOCK;
  return give(drop(p, Kind::pinned));
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  if (!p || !bytes) return give(cudaErrorInvalidValue);
  if (range_of(p, bytes, nullptr)) return give(cudaErrorHostMemoryAlreadyRegistered);
  state().memory[static_cast<char*>(p)] = {bytes, 0, Kind::registered, current};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  LOCK;
  const cudaError_t error = drop(p, Kind::registered);
  return give(error == cudaErrorInvalidValue ? cudaErrorHostMemoryNotRegistered : error);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  LOCK;
  std::memset(a, 0, sizeof *a);
  const Range* range = range_of(p, 0, nullptr);
  a->type = !range                        ? cudaMemoryTypeUnregistered
            : range->kind == Kind::device ? cudaMemoryTypeDevice
                                          : cudaMemoryTypeHost;
  a->device = range ? range->device : -2;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  LOCK;
  if (const cudaError_t error = refuse_copy(to, from, n, kind, true)) return give(error);
  const char *a = static_cast<char*>(to), *b = static_cast<const char*>(from);
  const bool apart = a + n <= b || b + n <= a;
  return give(put(
      stream, [=] { return std::memmove(to, from, n), cudaSuccess; },
      [=, fill = state().fill] {
        if (apart) std::memset(to, fill, n);
      }));
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  if (const cudaError_t error = refuse_copy(to, from, n, kind, false)) return give(error);
  if (const cudaError_t error = pump([] { return find(nullptr)->items.empty(); })) return give(error);
  std::memmove(to, from, n);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream) {
  LOCK;
  bool whole = false;
  const Range* range = range_of(p, n, &whole);
  if (!range || !whole || range->kind != Kind::device) return give(cudaErrorInvalidValue);
  return give(put(stream, [=] { return std::memset(p, value, n), cudaSuccess; }));
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
  return cudaMemsetAsync(p, value, n, nullptr);
}

cudaError_t cudaGetLastError(void) {
  LOCK;
  const cudaError_t error = state().sticky != cudaSuccess ? state().sticky : last;
  last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) {
  LOCK;
  return state().sticky != cudaSuccess ? state().sticky : last;
}
const char* cudaGetErrorName(cudaError_t error) {
#define NAME(x) \
  { x, #x }
  static const std::map<cudaError_t, const char*> names = {NAME(cudaSuccess),
                                                           NAME(cudaErrorInvalidValue),
                                                           NAME(cudaErrorMemoryAllocation),
                                                           NAME(cudaErrorIllegalAddress),
                                                           NAME(cudaErrorLaunchFailure),
                                                           NAME(cudaErrorLaunchTimeout),
                                                           NAME(cudaErrorNoDevice),
                                                           NAME(cudaErrorInsufficientDriver),
                                                           NAME(cudaErrorCompatNotSupportedOnDevice),
                                                           NAME(cudaErrorInvalidDevice),
                                                           NAME(cudaErrorInvalidResourceHandle),
                                                           NAME(cudaErrorInvalidDeviceFunction),
                                                           NAME(cudaErrorStreamCaptureUnsupported),
                                                           NAME(cudaErrorStreamCaptureInvalidated),
                                                           NAME(cudaErrorStreamCaptureUnjoined),
                                                           NAME(cudaErrorStreamCaptureIsolation),
                                                           NAME(cudaErrorStreamCaptureMerge),
                                                           NAME(cudaErrorIllegalState),
                                                           NAME(cudaErrorNotReady),
                                                           NAME(cudaErrorInvalidConfiguration),
                                                           NAME(cudaErrorHostMemoryAlreadyRegistered),
                                                           NAME(cudaErrorHostMemoryNotRegistered)};
#undef NAME
  const auto known = names.find(error);
  return known == names.end() ? "cudaError" : known->second;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorIllegalAddress     ? "an illegal memory access was encountered"
         : error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorInvalidValue     ? "invalid argument"
         : error == cudaErrorLaunchFailure    ? "unspecified launch failure"
                                              : "emulated";
}
}
