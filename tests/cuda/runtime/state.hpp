// SPDX-License-Identifier: Apache-2.0
// The state of the runtime: memory, streams, events, graphs. One lock for all.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "software.hpp"

namespace softcuda {

using Work = std::function<cudaError_t()>;
// The function that work runs as soon as it can begin.
using Begin = std::function<void()>;

struct Moment {
  bool passed = false;
  double when = 0;
};

struct Node {
  Work work;  // empty: only order
  std::vector<size_t> after;
  Begin begin{};
};
struct Graph {
  std::vector<Node> nodes;
};

struct Stream;
struct Capture {
  Stream* origin;
  Graph graph;
  std::set<Stream*> joined;
  bool broken = false;
};

struct Item {
  Work work;
  std::shared_ptr<Graph> graph;  // or all nodes of this,
  std::vector<char> done;
  std::shared_ptr<Moment> wait, pass;
  Begin begin{};
  std::vector<char> begun{};  // nodes
};

struct Stream {
  int number = 0, device = 0;
  std::deque<Item> items;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // nodes of the capture that the next one comes after
  bool open = false;             // has nodes that the origin has not waited for
};

struct Event {
  bool timed = false;
  std::shared_ptr<Moment> moment;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> nodes;
};

enum class Kind { device, pinned, registered };
struct Range {
  size_t bytes, mapped;
  Kind kind;
  int device;
};

struct Card {
  const char* name;
  int major, minor, processors, clock, memory_clock, bus;  // kHz, kHz, bits
  uint64_t bytes;
};

struct State {
  std::recursive_mutex lock;
  bool read = false;
  Card card{};
  std::vector<int> visible;  // by device: the number of its card on this machine
  enum { ok, none, old, compat } driver = ok;
  std::mt19937_64 random;
  int last_stream = -1;
  int ahead = 0, may = 0;  // pieces of work of that stream: how many more it does at once, and still may
  int64_t fail = -1;
  int fill = 0;  // of the target of a copy that has begun
  uint64_t work = 0, graphs = 0;
  std::vector<uint64_t> used, most;  // by device: bytes now, and ever
  std::map<char*, Range> memory;
  std::vector<std::unique_ptr<Stream>> streams;  // the first is the null stream
  int next_stream = 1;
  cudaError_t sticky = cudaSuccess;
  std::map<const void*, std::string> kernels;  // host stub -> mangled name
  std::map<const void*, int> shared_limit;
  software_cuda_twin_fn twins = nullptr;
};
State& state();  // with the environment read
extern thread_local int current;
extern thread_local cudaError_t last;
cudaError_t give(cudaError_t error);  // remembers it as the last one of this thread
void complain(const std::string& what);
// cudaSuccess, or why nothing can run.
cudaError_t usable();

Stream* find(cudaStream_t stream);  // nullptr: destroyed, or never made
// Puts work on a stream, or into its capture.
cudaError_t put(cudaStream_t stream, Work work, Begin begin = {});
// Does work, of any stream in random order, until `done`.
cudaError_t pump(const std::function<bool()>& done);
bool all_idle(int device);

// The allocation of an address; nullptr: pageable, or nothing of this runtime. *whole: all bytes lie in it.
const Range* range_of(const void* address, size_t bytes, bool* whole);

}  // namespace softcuda
