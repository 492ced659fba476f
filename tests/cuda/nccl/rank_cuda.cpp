// SPDX-License-Identifier: Apache-2.0
// The communicator nccl as it ships, on memory of the software CUDA runtime (emulated), which the host may touch while
// nothing is enqueued.
#include <cuda_runtime_api.h>

#include "tests/comm/rank.hpp"

namespace rank {
namespace {

void* allocate(size_t bytes) {
  void* out = nullptr;
  if (cudaMalloc(&out, bytes ? bytes : 1) != cudaSuccess) throw std::bad_alloc();
  return out;
}
void* queue() {
  cudaStream_t out = nullptr;
  if (cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking) != cudaSuccess) throw std::runtime_error("no stream");
  return out;
}

cudaStream_t of(void* queue) {
  return static_cast<cudaStream_t>(queue);
}
// RANK_CAPTURES=1: everything is captured, and launched as a graph.
bool captures() {
  static const bool does = getenv("RANK_CAPTURES") != nullptr;
  return does;
}
void begin(void* queue) {
  if (captures() && cudaStreamBeginCapture(of(queue), cudaStreamCaptureModeThreadLocal) != cudaSuccess)
    throw std::runtime_error("no capture");
}
std::string wait(void* queue) {
  cudaError_t error = cudaSuccess;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  if (captures()) {
    error = cudaStreamEndCapture(of(queue), &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&ready, graph, 0);
    if (error == cudaSuccess) error = cudaGraphLaunch(ready, of(queue));
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(of(queue));
  if (ready) cudaGraphExecDestroy(ready);
  if (graph) cudaGraphDestroy(graph);
  return error == cudaSuccess ? "" : cudaGetErrorName(error);
}

}  // namespace

const Subject subject = {
    .plugin = "nccl",
    .device = "",
    .files = {"nccl/nccl"},
    .enqueues = true,
    .allocate = allocate,
    .release = [](void* p) { cudaFree(p); },
    .queue = queue,
    .begin = begin,
    .wait = wait,
    .options =
        [](double timeout, int64_t) {
          const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
          return eng::Section("comm", {{"plugin", {std::string("nccl"), "test", true}},
                                       {"timeout", {timeout, "test", true}},
                                       {"address", {std::string(address ? address : "127.0.0.1"), "test", true}},
                                       {"share_gpus", {getenv("RANK_SHARES") != nullptr, "test", true}},
                                       {"port", {port ? int64_t{std::atoi(port)} : int64_t{29500}, "test", true}}});
        },
};

}  // namespace rank
