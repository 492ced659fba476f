// SPDX-License-Identifier: Apache-2.0
// Runs each queue on a host thread, for devices whose launches return when the work is done.
#include <array>
#include <thread>

#include "core/execute/runner.hpp"
#include "core/plan/waits.hpp"

namespace eng {
namespace {

// A counter that threads can wait for.
class Counter {
 public:
  void reset() { value_.store(0, std::memory_order_relaxed); }
  void add() {
    value_.fetch_add(1, std::memory_order_release);
    value_.notify_all();
  }
  bool beyond(uint32_t position) const { return value_.load(std::memory_order_acquire) > position; }
  void wait_beyond(uint32_t position) const {
    for (uint32_t now; (now = value_.load(std::memory_order_acquire)) <= position;)
      value_.wait(now, std::memory_order_acquire);
  }

 private:
  std::atomic<uint32_t> value_{0};
};

constexpr eng_exec here = {sizeof(eng_exec), 0, nullptr};

// Reads the clock only if it must wait.
void wait_timed(const Counter& counter, uint32_t position, std::chrono::nanoseconds& waited) {
  if (counter.beyond(position)) return;
  const auto start = std::chrono::steady_clock::now();
  counter.wait_beyond(position);
  waited += std::chrono::steady_clock::now() - start;
}

// An action of another queue to wait for: `position` counts the actions of that queue before it.
struct Wait {
  Queue queue;
  uint32_t position;
};
struct Task {
  const BoundAction* bound;
  std::vector<Wait> waits;
};

// One queue of a segment.
struct Lane {
  std::vector<Task> tasks;
  Counter done;  // tasks finished in this run of the segment
};
struct Lanes {
  std::array<Lane, queue_count> of;
  bool alone = true;  // only the compute queue is used
};

// The thread of a queue other than compute.
struct Worker {
  Counter started, finished;  // runs of segments
  uint32_t runs = 0;          // that the compute thread has waited for
  Lanes* lanes = nullptr;     // of the next run; nullptr ends the thread
  std::thread thread;
};

class Threads final : public Runner {
 public:
  Threads(const Plan& plan, Device& device, Bound& bound, bool ranks) : Runner(plan, device, bound, ranks) {
    for (const auto& program : bound.programs) {
      programs_.emplace_back();
      for (const BoundSegment& segment : program) add(segment);
    }
  }
  ~Threads() override {
    for (auto& worker : workers_)
      if (worker) {
        worker->lanes = nullptr;
        worker->started.add();
        worker->thread.join();
      }
  }

  void run(size_t program, size_t segment) override {
    Lanes& lanes = *programs_[program][segment];
    if (lanes.alone) return run(lanes, Queue::compute);
    for (Lane& lane : lanes.of) lane.done.reset();
    const auto used = [&](size_t q) { return !lanes.of[q].tasks.empty(); };  // queue 0 computes, on this thread
    for (size_t q = 1; q < queue_count; ++q)
      if (used(q)) {
        workers_[q]->lanes = &lanes;
        workers_[q]->started.add();
      }
    run(lanes, Queue::compute);
    for (size_t q = 1; q < queue_count; ++q)
      if (used(q)) wait_timed(workers_[q]->finished, workers_[q]->runs++, waited_for(static_cast<Queue>(q)));
  }

  std::optional<std::string> finish() override {
    device_.sync();
    return std::nullopt;
  }

 private:
  void add(const BoundSegment& segment) {
    Lanes& lanes = *programs_.back().emplace_back(std::make_unique<Lanes>());
    const Order order = order_of(*segment.segment);
    for (const BoundAction& one : segment.actions) {
      const Queue queue = one.action->queue;
      std::vector<Task>& tasks = lanes.of[index_of(queue)].tasks;
      tasks.push_back({&one, {}});
      for (uint32_t w : one.action->waits)
        tasks.back().waits.push_back({segment.segment->actions[w].queue, order.position[w]});
      if (queue == Queue::compute) continue;
      lanes.alone = false;
      if (workers_[index_of(queue)]) continue;
      Worker& worker = *(workers_[index_of(queue)] = std::make_unique<Worker>());
      worker.thread = std::thread([this, &worker, queue] {
        for (uint32_t round = 0;; ++round) {
          worker.started.wait_beyond(round);
          if (!worker.lanes) return;
          run(*worker.lanes, queue);
          worker.finished.add();
        }
      });
    }
  }

  void run(Lanes& lanes, Queue queue) {
    Lane& lane = lanes.of[index_of(queue)];
    std::chrono::nanoseconds uncounted{0};
    for (const Task& task : lane.tasks) {
      ActionRecorder::Event event{};
      if (recorder_) event.reached = Clock::now();
      for (const Wait& wait : task.waits)
        wait_timed(lanes.of[index_of(wait.queue)].done, wait.position,
                   queue == Queue::compute ? waited_for(wait.queue) : uncounted);
      if (recorder_) event.begin = Clock::now();
      if (!failed()) launch(*task.bound, here);
      if (recorder_) {
        event.end = Clock::now();
        event.call = task.bound->action->call, event.label = task.bound->action->label, event.queue = queue;
        recorder_->add(event);
      }
      if (!lanes.alone) lane.done.add();
    }
  }

  std::vector<std::vector<std::unique_ptr<Lanes>>> programs_;  // per program and segment of the plan
  std::array<std::unique_ptr<Worker>, queue_count> workers_;   // of the used queues except compute
};

}  // namespace

std::unique_ptr<Runner> run_on_threads(const Plan& plan, Device& device, Bound& bound, bool ranks) {
  return std::make_unique<Threads>(plan, device, bound, ranks);
}

}  // namespace eng
