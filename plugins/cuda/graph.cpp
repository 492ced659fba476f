// SPDX-License-Identifier: Apache-2.0
// Segments captured as CUDA graphs.
#include "device.hpp"

namespace cuda {
namespace {

eng_status capture_begin(void* self, void* queue, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    // Of this thread alone: ranks that are threads, and writers of checkpoints, may call CUDA meanwhile.
    d.check(cudaStreamBeginCapture(static_cast<cudaStream_t>(queue), cudaStreamCaptureModeThreadLocal),
            "beginning a capture", queue);
  });
}

eng_status capture_end(void* self, void* queue, void** out, eng_error* sink) {
  return entered(self, sink, [&](Device& d) {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(static_cast<cudaStream_t>(queue), &graph);
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
    d.check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(queue)), "launching a graph",
            queue);
  });
}

void graph_destroy(void* self, void* graph) {
  quietly(self, [&] { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); });
}

}  // namespace

void add_graph(eng_device& t) {
  t.capture_begin = capture_begin, t.capture_end = capture_end;
  t.graph_launch = graph_launch, t.graph_destroy = graph_destroy;
}

}  // namespace cuda
