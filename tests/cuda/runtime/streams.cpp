// SPDX-License-Identifier: Apache-2.0
// Streams, events, graphs and launches of the software CUDA runtime.
#include <algorithm>
#include <array>

#include "state.hpp"

using namespace softcuda;

namespace {

#define LOCK const std::lock_guard lock(state().lock)

Event& of(cudaEvent_t event) {
  return *reinterpret_cast<Event*>(event);
}
std::shared_ptr<Graph>& of(cudaGraph_t graph) {
  return *reinterpret_cast<std::shared_ptr<Graph>*>(graph);
}
std::shared_ptr<Graph>& of(cudaGraphExec_t graph) {
  return *reinterpret_cast<std::shared_ptr<Graph>*>(graph);
}

// A call that waits ends the captures it would wait for.
cudaError_t sync_stream(Stream* stream) {
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) return stream->capture->broken = true, cudaErrorStreamCaptureUnsupported;
  if (const cudaError_t error = usable()) return error;
  return pump([&] { return stream->items.empty(); });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  auto made = std::make_unique<Stream>();
  made->number = state().next_stream++, made->device = current;
  *out = reinterpret_cast<cudaStream_t>(made.get());
  state().streams.push_back(std::move(made));
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  LOCK;
  return give(sync_stream(find(stream)));
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  LOCK;
  const Stream* s = find(stream);
  if (!s) return give(cudaErrorInvalidResourceHandle);
  return *device = stream ? s->device : current, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LOCK;
  Stream* s = stream ? find(stream) : nullptr;
  const cudaError_t error = sync_stream(s);
  if (s) std::erase_if(state().streams, [&](const auto& one) { return one.get() == s; });
  return give(error);
}
cudaError_t cudaDeviceSynchronize(void) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  for (const auto& one : state().streams)
    if (one->capture && one->device == current)
      return one->capture->broken = true, give(cudaErrorStreamCaptureUnsupported);
  return give(pump([] { return all_idle(current); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  auto* made = new Event;
  made->timed = !(flags & cudaEventDisableTiming);
  *out = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  Stream* s = find(stream);
  if (!s) return give(cudaErrorInvalidResourceHandle);
  Event& e = of(event);
  if (s->capture) return e.capture = s->capture, e.nodes = s->frontier, e.moment = nullptr, cudaSuccess;
  e.capture = nullptr, e.moment = std::make_shared<Moment>();
  s->items.push_back({{}, nullptr, {}, nullptr, e.moment});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  Stream* s = find(stream);
  if (!s) return give(cudaErrorInvalidResourceHandle);
  const Event& e = of(event);
  if (e.capture) {
    if (!e.capture->origin) return give(cudaErrorStreamCaptureIsolation);
    if (s->capture && s->capture != e.capture) return give(cudaErrorStreamCaptureMerge);
    if (!s->capture) s->capture = e.capture, s->frontier.clear(), e.capture->joined.insert(s);
    for (const size_t node : e.nodes)
      if (!std::count(s->frontier.begin(), s->frontier.end(), node)) s->frontier.push_back(node);
    if (s == e.capture->origin)
      for (Stream* other : e.capture->joined)
        if (other->frontier == e.nodes) other->open = false;
    return cudaSuccess;
  }
  if (s->capture) {
    if (!e.moment) return cudaSuccess;  // never recorded
    s->capture->broken = true;
    return give(cudaErrorStreamCaptureIsolation);
  }
  if (e.moment) s->items.push_back({{}, nullptr, {}, e.moment, nullptr});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  const Event& e = of(event);
  if (e.capture) return give(cudaErrorCapturedEvent);
  const auto moment = e.moment;
  return give(pump([&] { return !moment || moment->passed; }));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  LOCK;
  const Event &a = of(begin), &b = of(end);
  if (!a.timed || !b.timed || !a.moment || !b.moment) return give(cudaErrorInvalidResourceHandle);
  if (!a.moment->passed || !b.moment->passed) return give(cudaErrorNotReady);
  *milliseconds = static_cast<float>((b.moment->when - a.moment->when) * 1e3);
  return cudaSuccess;
}

// Runs with the lock held: a function of the host may not call the runtime.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  LOCK;
  return give(put(stream, [=] { return function(data), cudaSuccess; }));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  Stream* s = stream ? find(stream) : nullptr;
  if (!s) return give(cudaErrorStreamCaptureUnsupported);
  if (s->capture) return give(cudaErrorIllegalState);
  s->capture = std::make_shared<Capture>(Capture{s, {}, {}});
  s->frontier.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  LOCK;
  *out = nullptr;
  Stream* s = stream ? find(stream) : nullptr;
  if (!s || !s->capture || s->capture->origin != s) return give(cudaErrorIllegalState);
  const auto capture = s->capture;
  cudaError_t error = capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  for (Stream* other : capture->joined) {
    if (other->open && !error) error = cudaErrorStreamCaptureUnjoined;
    other->capture.reset(), other->frontier.clear(), other->open = false;
  }
  s->capture.reset(), s->frontier.clear();
  capture->origin = nullptr;
  if (error) return give(error);
  *out = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>(std::make_shared<Graph>(capture->graph)));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  LOCK;
  const Stream* s = find(stream);
  *status = s && s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<Graph>(of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  LOCK;
  if (const cudaError_t error = usable()) return give(error);
  Stream* s = find(stream);
  if (!s) return give(cudaErrorInvalidResourceHandle);
  if (s->capture) return s->capture->broken = true, give(cudaErrorStreamCaptureUnsupported);
  ++state().graphs;
  s->items.push_back({{}, of(graph), std::vector<char>(of(graph)->nodes.size(), 0), nullptr, nullptr});
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete &of(graph);
  return cudaSuccess;
}

int software_cuda_enqueue(cudaStream_t stream, int (*work)(const void* data, char* text, uint64_t text_bytes),
                          void (*drop)(const void* data), const void* data) {
  LOCK;
  const std::shared_ptr<const void> held(data, drop);
  return give(put(stream, [=] {
    std::array<char, 1024> text{};
    if (work(held.get(), text.data(), text.size()) == 0) return cudaSuccess;
    complain(text.data());
    return cudaErrorIllegalAddress;
  }));
}
int software_cuda_reaches(const void* address, uint64_t bytes) {
  LOCK;
  bool whole = false;
  const Range* range = range_of(address, bytes, &whole);
  return range && whole && range->kind == Kind::device;
}

// ---- kernels, as nvcc's code registers and launches them ------------------------------------------------
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  LOCK;
  state().kernels[stub] = name;
}
// Used by launches with <<<>>>, which the plugin does not have: its stubs name this, and nothing calls them.
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
  return cudaErrorMissingConfiguration;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute what, int value) {
  LOCK;
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  int most = 0;
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, current);
  if (value > most) return give(cudaErrorInvalidValue);
  state().shared_limit[stub] = value;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  LOCK;
  State& s = state();
  if (const cudaError_t error = usable()) return give(error);
  const auto name = s.kernels.find(stub);
  const software_cuda_kernel* twin = name == s.kernels.end() || !s.twins ? nullptr : s.twins(name->second.c_str());
  if (!twin) {
    complain(name == s.kernels.end() ? "an unknown kernel" : "no host twin of " + name->second);
    return give(cudaErrorInvalidDeviceFunction);
  }
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535 || !block.x ||
      !block.y || !block.z || block.z > 64 || uint64_t{block.x} * block.y * block.z > 1024)
    return give(cudaErrorInvalidConfiguration);
  const auto limit = s.shared_limit.find(stub);
  if (shared > static_cast<size_t>(limit == s.shared_limit.end() ? 49152 : limit->second))
    return give(cudaErrorInvalidValue);
  const std::shared_ptr<void> taken(twin->take(args), twin->drop);
  return give(put(stream, [=, what = name->second] {
    const unsigned g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    std::array<char, 1024> text{};
    if (twin->run(twin, taken.get(), g, b, shared, text.data(), text.size()) == 0) return cudaSuccess;
    complain(what + ": " + text.data());
    return cudaErrorLaunchFailure;
  }));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t s) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared, s);
}
}
