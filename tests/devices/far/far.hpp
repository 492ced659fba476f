// SPDX-License-Identifier: Apache-2.0
// The test device "far": discrete memory, queues that are threads with random delays, graphs. Its kernels are those of
// other plugins, which it loads. Written against abi/ alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm.h"
#include "engine/plugin.h"

namespace far {

struct Error {
  eng_status status;
  std::string text;
};

// Runs `body` and turns what it throws into a status and a text.
template <class Body>
eng_status guarded(eng_error* sink, Body&& body) noexcept {
  const auto told = [&](eng_status status, const std::string& text) {
    if (sink && sink->set) sink->set(sink, status, text.data(), text.size());
    return status;
  };
  try {
    body();
    return ENG_OK;
  } catch (const Error& e) {
    return told(e.status, e.text);
  } catch (const std::exception& e) {
    return told(ENG_INTERNAL, e.what());
  }
}

// ---- memory ------------------------------------------------------------------------------------------
// An address of the device is one of a range that nobody may touch; the bytes are mapped elsewhere.
void* alloc_device(uint64_t bytes);
void* alloc_pinned(uint64_t bytes);
void free_device(void* address);
void free_pinned(void* address);
// Memory of others that copies may take.
void pin(void* address, uint64_t bytes);
void unpin(void* address);
// The bytes behind an address of the device or of pinned memory. Throws for any other.
void* bytes_of(const void* address, uint64_t bytes);
// Only of the device.
void* device_bytes_of(const void* address, uint64_t bytes);

// The bytes of outputs that are no input's, of tensors whose data have been translated, the first `n_in` being inputs.
std::vector<std::pair<char*, uint64_t>> fresh_bytes(const std::vector<const DLTensor*>& tensors, size_t n_in);
uint64_t size_of(const DLTensor& tensor);

// ---- queues ------------------------------------------------------------------------------------------
class Device;

// Collectives are counted from here, in the order of their binds.
constexpr uint64_t first_collective = uint64_t{1} << 40;

// A launch that was bound. `number` counts the binds of a device from 0.
struct Record {
  const eng_kernel* kernel = nullptr;
  void* record = nullptr;
  Device* device = nullptr;
  uint64_t number = 0;
  std::atomic<uint64_t> runs{0};
  std::vector<std::pair<char*, uint64_t>> fresh = {};  // what it writes and does not read: garbage while it is held
  bool capturable = true;
};

// Comes to pass once.
class Moment {
 public:
  void pass();
  void wait() const;
  bool passed() const;
  std::chrono::steady_clock::time_point when() const { return when_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool passed_ = false;
  std::chrono::steady_clock::time_point when_{};
};

struct Node {
  Record* record;
  std::vector<size_t> after;  // nodes of the graph
};
struct Graph {
  std::vector<Node> nodes;
};

struct Queue;
// The capture under way, from capture_begin to capture_end.
struct Capture {
  Queue* origin;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::vector<Queue*> joined = {};
  std::string broken = {};
};

struct Event {
  std::shared_ptr<Moment> last;      // of the last record
  std::shared_ptr<Capture> capture;  // or: it was recorded in this one,
  std::vector<size_t> nodes;         // after these
};

struct Task {
  std::shared_ptr<Moment> after;   // wait for it,
  Record* record = nullptr;        // run this,
  std::shared_ptr<Graph> graph;    // or all of this,
  std::shared_ptr<Moment> signal;  // then let it pass
};

struct Queue {
  Device* device;
  std::deque<Task> tasks;
  std::condition_variable changed;
  std::thread thread;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // nodes of the capture that the next one comes after
  bool open = false;             // has nodes that the origin has not waited for
};

struct Settings {
  int64_t delay = 0;             // microseconds before a task, at most
  uint64_t seed = 1;             // of the delays
  int64_t held = -1, free = -1;  // record `held` does not run before record `free` has, or before all that can
  int64_t late = -1;             // record `late` does not run before `held` has begun, if that can be
  int64_t patience = 20;         // milliseconds without anything happening, after which nothing more can
  bool graphs = true;
  std::string uncapturable;  // an op
  bool mortal = false;       // the first error ends it: every later call tells it again
};

class Device {
 public:
  explicit Device(const Settings& settings) : settings_(settings), random_(settings.seed) {}
  ~Device();
  const Settings& settings() const { return settings_; }

  Queue* create_queue();
  void destroy_queue(Queue* queue);
  void launch(Record& record, Queue* queue, bool wait);
  void record(Event& event, Queue& queue);
  void wait(const Event& event, Queue& queue);
  void sync(Event& event);
  void sync(Queue* queue);  // nullptr: all
  void begin(Queue& queue);
  std::shared_ptr<Graph> end(Queue& queue);
  void replay(std::shared_ptr<Graph> graph, Queue& queue);

  void* inner = nullptr;  // the device of the kernels
  const eng_device* inner_table = nullptr;
  uint64_t binds = 0;

 private:
  void put(Queue& queue, Task task);
  void work(Queue& queue);
  void perform(Record& record);
  void perform(const Graph& graph);
  void hold(const Record& record);
  template <class Ready>
  void wait_for(Ready ready);
  uint64_t random(uint64_t n);
  void check();

  const Settings settings_;
  std::mutex mutex_;  // of all queues' tasks, and of what follows
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unique_ptr<Error> error_;
  std::atomic<uint64_t> held_begun_{0};
  std::vector<Record*> seen_;          // by number
  std::atomic<uint64_t> progress_{0};  // tasks and nodes that have ended
};

// Counters of all devices of the process: actions put on queues, graphs made, graphs put on queues.
extern std::atomic<uint64_t> counts[3];

// ---- kernels -----------------------------------------------------------------------------------------
// Loads plugin files and wraps their kernels for device `of`; once per process, later calls must name the same.
void load_kernels(const std::vector<std::string>& files, const std::string& of);
const eng_kernels* kernels();
const eng_device* inner_device();
const eng_plugin& open_plugin(const std::string& file);
// The communicator "far_ranks", and its collectives.
const eng_comm* comm();
const eng_kernels* comm_kernels();

}  // namespace far
