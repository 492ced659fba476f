// SPDX-License-Identifier: Apache-2.0
// Queues of a device. One thread enqueues the actions in list order; waits become events. What works on the host cuts a
// segment into islands: before it the host waits for what it needs, and nothing later is enqueued until it has ended.
// Where the device has graphs, and all islands of a segment can be captured, they are captured once and launched whole.
#include <array>
#include <utility>

#include "core/execute/runner.hpp"

namespace eng {
namespace {

// Steps [first, last) of a segment: several that are enqueued, or one that works on the host.
struct Island {
  size_t first, last;
  void* graph = nullptr;
};

struct Enqueued {
  const BoundSegment* segment;
  std::vector<Island> islands;
  std::vector<void*> ended;               // per step: the event after it, where somebody waits for it
  std::vector<std::vector<size_t>> host;  // per step that works on the host: those that it waits for
  std::array<bool, queue_count> uses{};
  bool graphs = false;  // every island of the device has one
};

class Streams final : public Runner {
 public:
  Streams(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs)
      : Runner(plan, device, bound, ranks), table_(device.table()), self_(device.self()) {
    try {
      for (const auto& program : bound.programs) {
        programs_.emplace_back();
        for (const BoundSegment& segment : program) add(segment, graphs);
      }
      for (void*& event : settled_) event = new_event();
    } catch (...) {
      release();
      throw;
    }
  }
  ~Streams() override { release(); }

  void run(size_t program, size_t number) override {
    Enqueued& segment = programs_[program][number];
    if (recorder_) {
      run_timed(segment);
    } else if (segment.graphs) {
      for (const Island& island : segment.islands)
        if (island.graph) {
          check("graph_launch", table_.graph_launch, island.graph, queue(Queue::compute));
        } else {
          check("event_record", table_.event_record, border_, queue(Queue::compute));
          on_host(segment, island.first);
        }
    } else {
      enqueue_all(segment);
    }
    check("event_record", table_.event_record, settled_[runs_++ % 2], queue(Queue::compute));
  }

  void settle() override {
    if (runs_ > 1) meet(settled_[runs_ % 2]);
  }

  std::optional<std::string> finish() override {
    Sink sink;
    const eng_status status = table_.sync(self_, nullptr, sink.get());
    const std::string text = std::exchange(late_, "");
    if (status == ENG_OK && text.empty()) return std::nullopt;
    return "device " + device_.name() + ": " + (text.empty() ? sink.text(status) : text);
  }

  eng_exec where(Queue q) const override { return {sizeof(eng_exec), ENG_EXEC_SYNC, queues_[index_of(q)]}; }

  void record(ActionRecorder* recorder) override {
    recorder_ = table_.event_elapsed ? recorder : nullptr;
    if (!recorder_) return;
    size_t most = 0;
    for (const auto& program : programs_)
      for (const Enqueued& segment : program) most = std::max(most, segment.ended.size());
    while (timed_.size() < 2 * most + 1) timed_.push_back(new_event(1));
    times_.resize(most);
  }

 private:
  // A call that fails ends the program like an action that fails.
  template <class F, class... Args>
  void check(const char* what, F function, Args... args) {
    Sink sink;
    const eng_status status = function(self_, args..., sink.get());
    if (status != ENG_OK)
      fail(Exit::environment, fmt::format("device {}, {}: {}", device_.name(), what, sink.text(status)));
  }
  void* new_event(int32_t timed = 0) {
    void* event = nullptr;
    device_.call("event_create", table_.event_create, timed, &event);
    events_.push_back(event);
    return event;
  }
  void* queue(Queue q) const { return queues_[index_of(q)]; }
  // Host and device meet. Errors that the device tells here are those of earlier launches.
  void meet(void* event) {
    Sink sink;
    const eng_status status =
        table_.event_sync ? table_.event_sync(self_, event, sink.get()) : table_.sync(self_, nullptr, sink.get());
    if (status == ENG_OK) return;
    if (late_.empty()) late_ = sink.text(status);
    fail(Exit::environment, late_);
  }

  void add(const BoundSegment& segment, bool graphs) {
    Enqueued& e = programs_.back().emplace_back();
    e.segment = &segment;
    e.ended.resize(segment.steps.size());
    e.host.resize(segment.steps.size());
    std::array<size_t, queue_count> last;
    last.fill(SIZE_MAX);
    const auto need = [&](size_t k) {
      if (!e.ended[k] && !segment.steps[k].on_host) e.ended[k] = new_event();
    };
    e.uses[index_of(Queue::compute)] = true;
    for (size_t k = 0; k < segment.steps.size(); ++k) {
      const Step& step = segment.steps[k];
      const size_t q = index_of(step.action->queue);
      e.uses[q] = true;
      for (uint32_t w : step.action->waits) need(w);
      if (step.on_host) {
        for (uint32_t w : step.action->waits)
          if (!segment.steps[w].on_host) e.host[k].push_back(w);
        if (last[q] != SIZE_MAX && !segment.steps[last[q]].on_host) need(last[q]), e.host[k].push_back(last[q]);
      }
      last[q] = k;
      const bool more = !step.on_host && k > 0 && !segment.steps[k - 1].on_host;
      if (more)
        e.islands.back().last = k + 1;
      else
        e.islands.push_back({k, k + 1});
    }
    for (size_t q = 0; q < queue_count; ++q)
      if (e.uses[q] && !queues_[q]) {
        device_.call("queue_create", table_.queue_create, &queues_[q]);
        joins_[q] = new_event();
      }
    if (!border_) border_ = new_event();
    if (graphs) capture(e);
  }

  // Captures every island of the device, or none.
  void capture(Enqueued& e) {
    e.graphs = true;
    for (Island& island : e.islands) {
      if (e.segment->steps[island.first].on_host) continue;
      Sink sink;
      if (table_.capture_begin(self_, queue(Queue::compute), sink.get()) == ENG_OK) {
        begin();
        fork(e);
        for (size_t k = island.first; k < island.last; ++k) enqueue(e, k, island.first);
        join(e);
        if (table_.capture_end(self_, queue(Queue::compute), &island.graph, sink.get()) != ENG_OK)
          island.graph = nullptr;
        else if (failed())
          table_.graph_destroy(self_, std::exchange(island.graph, nullptr));
      }
      e.graphs = e.graphs && island.graph;
    }
    if (e.graphs) return;
    for (Island& island : e.islands)
      if (island.graph) table_.graph_destroy(self_, std::exchange(island.graph, nullptr));
  }

  // The other queues of a segment start after what is on the compute queue, and the compute queue goes on after them.
  void fork(const Enqueued& e) {
    check("event_record", table_.event_record, border_, queue(Queue::compute));
    for (size_t q = 1; q < queue_count; ++q)
      if (e.uses[q]) check("event_wait", table_.event_wait, border_, queues_[q]);
  }
  void join(const Enqueued& e) {
    for (size_t q = 1; q < queue_count; ++q)
      if (e.uses[q]) {
        check("event_record", table_.event_record, joins_[q], queues_[q]);
        check("event_wait", table_.event_wait, joins_[q], queue(Queue::compute));
      }
  }

  // Step k and its waits for steps from `from` on; what comes before has ended. `times`: where to record.
  void enqueue(const Enqueued& e, size_t k, size_t from, void* const* times = nullptr) {
    const Step& step = e.segment->steps[k];
    void* own = queue(step.action->queue);
    for (uint32_t w : step.action->waits)
      if (w >= from && e.ended[w]) check("event_wait", table_.event_wait, e.ended[w], own);
    if (times) check("event_record", table_.event_record, times[0], own);
    if (!failed()) launch(step, {sizeof(eng_exec), 0, own});
    if (times) check("event_record", table_.event_record, times[1], own);
    if (e.ended[k]) check("event_record", table_.event_record, e.ended[k], own);
  }

  // A step that works on the host, when what it needs has ended: the segment before this one, or the graphs before it,
  // and its own waits.
  void on_host(const Enqueued& e, size_t k) {
    const auto start = Clock::now();
    meet(border_);
    if (!e.graphs || recorder_)
      for (size_t w : e.host[k]) meet(e.ended[w]);
    const Step& step = e.segment->steps[k];
    if (!failed()) launch(step, {sizeof(eng_exec), 0, queue(step.action->queue)});
    waited_ += Clock::now() - start;
  }

  void enqueue_all(const Enqueued& e) {
    fork(e);
    for (size_t k = 0; k < e.segment->steps.size(); ++k)
      if (e.segment->steps[k].on_host)
        on_host(e, k);
      else
        enqueue(e, k, 0);
    join(e);
  }

  // The same, with the times of every step; waits for the end, for the events are used again.
  void run_timed(const Enqueued& e) {
    void* zero = timed_.back();
    check("event_record", table_.event_record, zero, queue(Queue::compute));
    meet(zero);
    const auto start = Clock::now();
    const auto& steps = e.segment->steps;
    fork(e);
    for (size_t k = 0; k < steps.size(); ++k) {
      if (!steps[k].on_host) {
        enqueue(e, k, 0, &timed_[2 * k]);
        continue;
      }
      times_[k].begin = Clock::now();
      on_host(e, k);
      times_[k].end = Clock::now();
    }
    join(e);
    check("event_record", table_.event_record, border_, queue(Queue::compute));
    meet(border_);
    if (failed()) return;
    std::array<Clock::time_point, queue_count> reached;
    reached.fill(start);
    const auto time = [&](void* event) {
      double seconds = 0;
      check("event_elapsed", table_.event_elapsed, zero, event, &seconds);
      return start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    for (size_t k = 0; k < steps.size(); ++k) {
      const Action& action = *steps[k].action;
      if (!steps[k].on_host) times_[k] = {{}, time(timed_[2 * k]), time(timed_[2 * k + 1]), 0, 0, {}};
      ActionRecorder::Event& event = times_[k];
      event.reached = reached[index_of(action.queue)];
      event.call = action.call, event.block = action.block, event.queue = action.queue;
      if (action.queue == Queue::compute) waited_ += event.begin - event.reached;
      reached[index_of(action.queue)] = event.end;
      recorder_->add(event);
    }
  }

  void release() {
    table_.sync(self_, nullptr, nullptr);
    for (auto& program : programs_)
      for (Enqueued& segment : program)
        for (Island& island : segment.islands)
          if (island.graph) table_.graph_destroy(self_, island.graph);
    for (void* event : events_) table_.event_destroy(self_, event);
    for (void* queue : queues_)
      if (queue) table_.queue_destroy(self_, queue);
  }

  const eng_device& table_;
  void* const self_;
  std::array<void*, queue_count> queues_{}, joins_{};
  std::string late_;           // the first error of a launch before
  std::vector<void*> events_;  // all of them
  std::vector<void*> timed_;   // two per step, then that of the beginning
  std::vector<ActionRecorder::Event> times_;
  void* border_ = nullptr;
  std::array<void*, 2> settled_{};  // after the last repetition but one, and after the last one
  size_t runs_ = 0;
  std::vector<std::vector<Enqueued>> programs_;  // as in the plan
};

}  // namespace

std::unique_ptr<Runner> run_on_queues(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs) {
  return std::make_unique<Streams>(plan, device, bound, ranks, graphs);
}

}  // namespace eng
