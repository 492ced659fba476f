// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient as graphs of cuDNN. libcudnn.so.9 is loaded when the first of these is used: without it
// the plugin still loads, and computes attention by its own kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention_workspace.hpp"

namespace cuda::sdpa {

// The loaded cuDNN as a number: 91900 is 9.19.0. Throws Error(ENG_UNAVAILABLE) if there is none.
uint64_t loaded_version();

// The target of a graph: a GPU, or, to learn what cuDNN would do there, one that is described.
struct Place {
  uint32_t arch;           // 90 for sm_90
  uint32_t processors;     // SMs
  void* handle = nullptr;  // a cudnnHandle_t; null: `properties` describe the GPU, and nothing can run
  std::string properties;  // as cuDNN writes them, in JSON
};

// A graph that cuDNN compiled for one shape. It may be executed on several addresses.
class Graph {
 public:
  // `linear`: see attention_workspace.hpp. Throws Error(ENG_UNSUPPORTED) with cuDNN's reason if it refuses.
  Graph(const Shape& shape, double scale, const Place& place, bool linear);
  uint64_t workspace() const;  // bytes
  std::string engine() const;  // which of cuDNN's engines, for people

 private:
  friend class Pack;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// A graph and its addresses. Executing it makes nothing and looks nothing up.
class Pack {
 public:
  // forward: q, k, v, o, lse; backward: do, q, k, v, o, lse, dq, dk, dv. Throws Error.
  Pack(const Graph& graph, const std::vector<void*>& tensors, void* workspace);
  // On the stream of the handle. Throws Error.
  void execute(void* handle) const;

 private:
  void* plan_;  // the graph's; cudnnBackendDescriptor_t, as the pack
  std::shared_ptr<void> pack_;
};

// A handle of the current GPU, and the stream it works on; cuDNN is loaded. Throw Error: ENG_UNSUPPORTED if it does not
// start there.
std::shared_ptr<void> create_handle();
void set_stream(void* handle, void* stream);

}  // namespace cuda::sdpa
