// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "far.hpp"

namespace far {

std::atomic<uint64_t> counts[3];

void Moment::pass() {
  const std::lock_guard lock(mutex_);
  when_ = std::chrono::steady_clock::now(), passed_ = true;
  changed_.notify_all();
}
void Moment::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return passed_; });
}
bool Moment::passed() const {
  const std::lock_guard lock(mutex_);
  return passed_;
}

Device::~Device() {
  while (!queues_.empty()) destroy_queue(queues_.back().get());
  if (inner_table) inner_table->destroy(inner);
}

Queue* Device::create_queue() {
  auto made = std::make_unique<Queue>();
  Queue* queue = made.get();
  queue->device = this;
  const std::lock_guard lock(mutex_);
  queues_.push_back(std::move(made));
  queue->thread = std::thread([this, queue] { work(*queue); });
  return queue;
}

void Device::destroy_queue(Queue* queue) {
  put(*queue, {});  // an empty task ends the thread
  queue->thread.join();
  const std::lock_guard lock(mutex_);
  std::erase_if(queues_, [&](const auto& one) { return one.get() == queue; });
}

uint64_t Device::random(uint64_t n) {
  const std::lock_guard lock(mutex_);
  return n ? random_() % n : 0;
}

void Device::put(Queue& queue, Task task) {
  const std::lock_guard lock(mutex_);
  queue.tasks.push_back(std::move(task));
  queue.changed.notify_one();
}

// The thread of a queue.
void Device::work(Queue& queue) {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      queue.changed.wait(lock, [&] { return !queue.tasks.empty(); });
      task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
    }
    if (!task.after && !task.record && !task.graph && !task.signal) return;
    if (task.after) task.after->wait();
    if (task.record) perform(*task.record);
    if (task.graph) perform(*task.graph);
    if (task.signal) task.signal->pass();
    ++progress_;
  }
}

// Returns when `ready` says so, or nothing happens any more.
template <class Ready>
void Device::wait_for(Ready ready) {
  uint64_t last = progress_;
  for (int64_t quiet = 0; quiet < settings_.patience && !ready(); ++quiet) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (progress_ != last) last = progress_, quiet = 0;
  }
}

// It has begun, so what it writes holds nothing. Stays until record `free` has run once more than this one.
void Device::hold(const Record& record) {
  for (const auto& [data, bytes] : record.fresh) std::memset(data, 0xff, bytes);
  ++held_begun_;
  wait_for([&] {
    const std::lock_guard lock(mutex_);
    const auto other = static_cast<size_t>(settings_.free);
    return settings_.free >= 0 && other < seen_.size() && seen_[other] && seen_[other]->runs > record.runs;
  });
}

void Device::perform(Record& record) {
  if (const uint64_t delay = random(static_cast<uint64_t>(settings_.delay) + 1))
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  if (settings_.late == static_cast<int64_t>(record.number)) wait_for([&] { return held_begun_ > record.runs; });
  if (settings_.held == static_cast<int64_t>(record.number)) hold(record);
  bool failed;
  {
    const std::lock_guard lock(mutex_);
    failed = error_ != nullptr;
  }
  if (!failed) {
    // As a device does: the error is not the launch's, and comes with whatever syncs next.
    Error error{ENG_OK, ""};
    eng_error sink{sizeof(eng_error), 0, &error, [](eng_error* self, eng_status, const char* text, uint64_t length) {
                     static_cast<Error*>(self->data)->text.assign(text ? text : "", text ? length : 0);
                   }};
    const eng_exec exec{sizeof(eng_exec), 0, nullptr};
    error.status = record.kernel->launch(record.record, &exec, &sink);
    const std::lock_guard lock(mutex_);
    if (error.status != ENG_OK && !error_) error_ = std::make_unique<Error>(error);
  }
  const std::lock_guard lock(mutex_);
  ++record.runs;
}

// In any order that the graph allows.
void Device::perform(const Graph& graph) {
  std::vector<char> done(graph.nodes.size(), 0);
  std::vector<size_t> ready;
  for (size_t left = graph.nodes.size(); left > 0; --left) {
    ready.clear();
    for (size_t k = 0; k < graph.nodes.size(); ++k)
      if (!done[k] && std::all_of(graph.nodes[k].after.begin(), graph.nodes[k].after.end(),
                                  [&](size_t before) { return done[before]; }))
        ready.push_back(k);
    if (ready.size() > 1)
      std::erase_if(ready, [&](size_t k) {
        return graph.nodes[k].record && static_cast<int64_t>(graph.nodes[k].record->number) == settings_.held;
      });
    const size_t next = ready[random(ready.size())];
    if (graph.nodes[next].record) perform(*graph.nodes[next].record);
    done[next] = 1, ++progress_;
  }
}

void Device::launch(Record& record, Queue* queue, bool wait) {
  if (!queue) throw Error{ENG_PRECONDITION, "a launch without a queue"};
  if (record.number < first_collective) {
    const std::lock_guard lock(mutex_);
    if (seen_.size() <= record.number) seen_.resize(record.number + 1);
    seen_[record.number] = &record;
  }
  if (const auto capture = queue->capture) {
    if (!record.capturable) {
      capture->broken = std::string(record.kernel->op) + " cannot be captured";
      throw Error{ENG_UNSUPPORTED, capture->broken};
    }
    capture->graph->nodes.push_back({&record, queue->frontier});
    queue->frontier = {capture->graph->nodes.size() - 1};
    queue->open = queue != capture->origin;
    return;
  }
  ++counts[0];
  put(*queue, {nullptr, &record, nullptr, nullptr});
  if (wait) sync(queue);
}

void Device::record(Event& event, Queue& queue) {
  if (queue.capture) {
    event = {nullptr, queue.capture, queue.frontier};
    return;
  }
  event = {std::make_shared<Moment>(), nullptr, {}};
  put(queue, {nullptr, nullptr, nullptr, event.last});
}

void Device::wait(const Event& event, Queue& queue) {
  if (event.capture) {
    if (!event.capture->origin) throw Error{ENG_PRECONDITION, "an event of a capture that has ended"};
    if (!queue.capture) queue.capture = event.capture, queue.frontier.clear(), queue.capture->joined.push_back(&queue);
    if (queue.capture != event.capture) throw Error{ENG_PRECONDITION, "an event of another capture"};
    for (size_t node : event.nodes)
      if (!std::count(queue.frontier.begin(), queue.frontier.end(), node)) queue.frontier.push_back(node);
    if (&queue == event.capture->origin)
      for (Queue* other : event.capture->joined)
        if (other->frontier == event.nodes) other->open = false;
    return;
  }
  if (queue.capture) throw Error{ENG_PRECONDITION, "a captured queue waits for what is not captured"};
  if (event.last) put(queue, {event.last, nullptr, nullptr, nullptr});
}

void Device::check() {
  const std::lock_guard lock(mutex_);
  if (error_) throw *error_;
}

void Device::sync(Event& event) {
  if (event.capture) throw Error{ENG_PRECONDITION, "an event of a capture"};
  if (event.last) event.last->wait();
  check();
}

void Device::sync(Queue* queue) {
  std::vector<std::shared_ptr<Moment>> ends;
  std::vector<Queue*> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : queues_)
      if (!queue || one.get() == queue) all.push_back(one.get());
  }
  for (Queue* one : all) {
    ends.push_back(std::make_shared<Moment>());
    put(*one, {nullptr, nullptr, nullptr, ends.back()});
  }
  for (const auto& end : ends) end->wait();
  const std::lock_guard lock(mutex_);
  if (settings_.mortal && error_) throw *error_;
  if (const auto error = std::exchange(error_, nullptr)) throw *error;
}

void Device::begin(Queue& queue) {
  if (queue.capture) throw Error{ENG_PRECONDITION, "a capture in a capture"};
  queue.capture = std::make_shared<Capture>(Capture{&queue});
  queue.frontier.clear();
}

std::shared_ptr<Graph> Device::end(Queue& queue) {
  const auto capture = queue.capture;
  if (!capture || capture->origin != &queue) throw Error{ENG_PRECONDITION, "there is no capture of this queue"};
  std::string wrong = capture->broken;
  for (Queue* other : capture->joined) {
    if (other->open && wrong.empty()) wrong = "a queue of the capture has not been joined";
    other->capture.reset(), other->frontier.clear(), other->open = false;
  }
  queue.capture.reset(), queue.frontier.clear();
  capture->origin = nullptr;
  if (!wrong.empty()) throw Error{ENG_UNSUPPORTED, wrong};
  ++counts[1];
  return capture->graph;
}

void Device::replay(std::shared_ptr<Graph> graph, Queue& queue) {
  if (queue.capture) throw Error{ENG_PRECONDITION, "a graph in a capture"};
  ++counts[2];
  put(queue, {nullptr, nullptr, std::move(graph), nullptr});
}

}  // namespace far
