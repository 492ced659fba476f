// SPDX-License-Identifier: Apache-2.0
// Queues are streams that do not wait for the null stream; events are events; segments are captured as CUDA graphs.
#include <algorithm>

#include "device.hpp"

namespace cuda {
namespace {

cudaStream_t stream_of(void* queue) {
  return static_cast<cudaStream_t>(queue);
}
cudaEvent_t event_of(void* event) {
  return static_cast<cudaEvent_t>(event);
}

eng_status sync(void* self, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.check(queue ? cudaStreamSynchronize(stream_of(queue)) : cudaDeviceSynchronize(), "waiting for its work", queue);
  });
}

eng_status queue_create(void* self, void** queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.queues.reserve(d.queues.size() + 1);
    cudaStream_t made = nullptr;
    d.check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "creating a queue");
    d.queues.push_back(made);
    *queue = made;
  });
}

// Its place stays, so that the numbers of the others do.
void queue_destroy(void* self, void* queue) {
  Device& d = of(self);
  quietly(self, [&] { cudaStreamDestroy(stream_of(queue)); });
  std::replace(d.queues.begin(), d.queues.end(), stream_of(queue), cudaStream_t{nullptr});
}

eng_status event_create(void* self, int32_t timed, void** event, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    cudaEvent_t made = nullptr;
    d.check(cudaEventCreateWithFlags(&made, timed ? cudaEventDefault : cudaEventDisableTiming), "creating an event");
    *event = made;
  });
}

void event_destroy(void* self, void* event) {
  quietly(self, [&] { cudaEventDestroy(event_of(event)); });
}

eng_status event_record(void* self, void* event, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.check(cudaEventRecord(event_of(event), stream_of(queue)), "recording an event", queue);
  });
}

eng_status event_wait(void* self, void* event, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.check(cudaStreamWaitEvent(stream_of(queue), event_of(event), 0), "waiting for an event", queue);
  });
}

eng_status event_sync(void* self, void* event, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.check(cudaEventSynchronize(event_of(event)), "waiting for an event on the host");
  });
}

eng_status event_elapsed(void* self, void* begin, void* end, double* seconds, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    float milliseconds = 0;
    d.check(cudaEventElapsedTime(&milliseconds, event_of(begin), event_of(end)), "reading two events");
    *seconds = double(milliseconds) * 1e-3;
  });
}

eng_status capture_begin(void* self, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    // Captures for this thread alone: ranks that are threads, and writers of checkpoints, may call CUDA meanwhile.
    d.check(cudaStreamBeginCapture(stream_of(queue), cudaStreamCaptureModeThreadLocal), "beginning a capture", queue);
  });
}

eng_status capture_end(void* self, void* queue, void** out, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_of(queue), &graph);
    if (ended != cudaSuccess && graph) cudaGraphDestroy(graph);
    d.check(ended, "ending a capture", queue);
    cudaGraphExec_t made = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&made, graph, 0);
    cudaGraphDestroy(graph);
    d.check(error, "making a graph of a capture", queue);
    *out = made;
  });
}

eng_status graph_launch(void* self, void* graph, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    d.check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(queue)), "launching a graph", queue);
  });
}

void graph_destroy(void* self, void* graph) {
  quietly(self, [&] { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); });
}

}  // namespace

void add_streams(eng_device& t) {
  t.sync = sync;
  t.queue_create = queue_create, t.queue_destroy = queue_destroy;
  t.event_create = event_create, t.event_destroy = event_destroy;
  t.event_record = event_record, t.event_wait = event_wait;
  t.event_sync = event_sync, t.event_elapsed = event_elapsed;
  t.capture_begin = capture_begin, t.capture_end = capture_end;
  t.graph_launch = graph_launch, t.graph_destroy = graph_destroy;
}

}  // namespace cuda
