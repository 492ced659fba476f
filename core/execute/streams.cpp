// SPDX-License-Identifier: Apache-2.0
// Runs a plan on queues of the device. One thread enqueues the actions in list order; waits become events. Actions that
// run on the host cut a segment into islands: the host waits for what such an action needs, runs it, and enqueues later
// actions after it. If the device has graphs and all islands of a segment can be captured, each is captured once and
// launched as a graph.
#include <array>
#include <utility>

#include "core/execute/runner.hpp"
#include "core/plan/waits.hpp"

namespace eng {
namespace {

// Steps [first, last) of a segment: several that are enqueued, or one that runs on the host.
struct Island {
  size_t first, last;
  void* graph = nullptr;
};

struct Enqueued {
  const BoundSegment* segment;
  std::vector<Island> islands;
  std::vector<void*> ended;               // per action: the event recorded after it; null if nothing waits for it
  std::vector<std::vector<size_t>> host;  // per action, if it runs on the host: the enqueued actions that it waits for
  std::vector<uint32_t> order;            // of enqueueing, without graphs
  std::array<bool, queue_count> uses{};   // queues
  bool graphs = false;                    // every enqueued island has a graph
};

class Streams final : public Runner {
 public:
  Streams(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs)
      : Streams(plan, device, bound, ranks) {
    for (const auto& program : bound.programs) {
      programs_.emplace_back();
      for (const BoundSegment& segment : program) add(segment, graphs);
    }
    for (void*& event : settled_) event = new_event();
  }
  ~Streams() override {
    table_.sync(self_, nullptr, nullptr);
    for (auto& program : programs_)
      for (Enqueued& segment : program)
        for (Island& island : segment.islands)
          if (island.graph) table_.graph_destroy(self_, island.graph);
    for (void* event : events_) table_.event_destroy(self_, event);
    for (void* queue : queues_)
      if (queue) table_.queue_destroy(self_, queue);
  }

  void run(size_t program, size_t number) override {
    Enqueued& segment = programs_[program][number];
    if (recorder_)
      run_timed(segment);
    else if (!segment.graphs)
      enqueue_all(segment);
    else
      for (const Island& island : segment.islands)
        if (island.graph)
          check("graph_launch", table_.graph_launch, island.graph, queue(Queue::compute));
        else
          check("event_record", table_.event_record, border_, queue(Queue::compute)), on_host(segment, island.first);
    check("event_record", table_.event_record, settled_[runs_++ % 2], queue(Queue::compute));
  }

  void settle() override {
    if (runs_ > 1) wait_for(settled_[runs_ % 2]);
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
  // Once this has ended, the destructor runs also if the other constructor throws.
  Streams(const Plan& plan, Device& device, Bound& bound, bool ranks)
      : Runner(plan, device, bound, ranks), table_(device.table()), self_(device.self()) {}
  // A failed call ends the program like a failed action.
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
  // The host waits for an event. Errors reported here are of earlier launches.
  void wait_for(void* event) {
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
    e.ended.resize(segment.actions.size());
    e.host.resize(segment.actions.size());
    e.order = enqueue_order(*segment.segment);
    std::array<size_t, queue_count> last;
    last.fill(SIZE_MAX);
    e.uses[index_of(Queue::compute)] = true;
    for (size_t k = 0; k < segment.actions.size(); ++k) {
      const BoundAction& one = segment.actions[k];
      const size_t q = index_of(one.action->queue);
      e.uses[q] = true;
      std::vector<size_t> needs(one.action->waits.begin(), one.action->waits.end());
      if (one.on_host && last[q] != SIZE_MAX) needs.push_back(last[q]);
      for (size_t w : needs) {
        if (segment.actions[w].on_host) continue;
        if (!e.ended[w]) e.ended[w] = new_event();
        if (one.on_host) e.host[k].push_back(w);
      }
      last[q] = k;
      if (!one.on_host && k > 0 && !segment.actions[k - 1].on_host)
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
    // A graph is waited for as a whole: the host would not compute while the device does.
    if (graphs && !e.uses[index_of(Queue::host)]) capture(e);
  }

  // Captures every enqueued island, or none.
  void capture(Enqueued& e) {
    e.graphs = true;
    for (Island& island : e.islands) {
      if (e.segment->actions[island.first].on_host) continue;
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

  // The other queues start a segment after the earlier work of the compute queue, and the compute queue continues after
  // them.
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

  // Enqueues action k, and its waits for actions from `from` on; earlier ones have ended. `times`: events to record
  // before and after it.
  void enqueue(const Enqueued& e, size_t k, size_t from, void* const* times = nullptr) {
    const BoundAction& one = e.segment->actions[k];
    void* own = queue(one.action->queue);
    for (uint32_t w : one.action->waits)
      if (w >= from && e.ended[w]) check("event_wait", table_.event_wait, e.ended[w], own);
    if (times) check("event_record", table_.event_record, times[0], own);
    if (!failed()) launch(one, {sizeof(eng_exec), 0, own});
    if (times) check("event_record", table_.event_record, times[1], own);
    if (e.ended[k]) check("event_record", table_.event_record, e.ended[k], own);
  }

  // Runs action k on the host when what it needs has ended: the previous segment or the graphs before it (`border_`),
  // and the actions it waits for.
  void on_host(const Enqueued& e, size_t k) {
    const auto start = Clock::now();
    wait_for(border_);
    if (!e.graphs || recorder_)
      for (size_t w : e.host[k]) wait_for(e.ended[w]);
    const BoundAction& one = e.segment->actions[k];
    if (recorder_) times_[k].begin = Clock::now();
    if (!failed()) launch(one, {sizeof(eng_exec), 0, one.others ? nullptr : queue(one.action->queue)});
    if (recorder_) times_[k].end = Clock::now();
    waited_for(one.action->queue) += Clock::now() - start;
  }

  void enqueue_all(const Enqueued& e) {
    fork(e);
    for (uint32_t k : e.order)
      if (e.segment->actions[k].on_host)
        on_host(e, k);
      else
        enqueue(e, k, 0, recorder_ ? &timed_[2 * k] : nullptr);
    join(e);
  }

  // Runs a step and measures the time of every action. Waits for the end because the events are reused.
  void run_timed(const Enqueued& e) {
    void* zero = timed_.back();
    check("event_record", table_.event_record, zero, queue(Queue::compute));
    wait_for(zero);
    const auto start = Clock::now();
    const auto& actions = e.segment->actions;
    enqueue_all(e);
    check("event_record", table_.event_record, border_, queue(Queue::compute));
    wait_for(border_);
    if (failed()) return;
    std::array<Clock::time_point, queue_count> reached;
    reached.fill(start);
    const auto time = [&](void* event) {
      double seconds = 0;
      check("event_elapsed", table_.event_elapsed, zero, event, &seconds);
      return start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    for (size_t k = 0; k < actions.size(); ++k) {
      const Action& action = *actions[k].action;
      if (!actions[k].on_host) times_[k] = {{}, time(timed_[2 * k]), time(timed_[2 * k + 1]), 0, 0, {}};
      ActionRecorder::Event& event = times_[k];
      event.reached = reached[index_of(action.queue)];
      event.call = action.call, event.label = action.label, event.queue = action.queue;
      const Queue last = action.waits.empty() ? Queue::comm : actions[action.waits.back()].action->queue;
      if (action.queue == Queue::compute) waited_for(last) += event.begin - event.reached;
      reached[index_of(action.queue)] = event.end;
      recorder_->add(event);
    }
  }

  const eng_device& table_;
  void* const self_;
  std::array<void*, queue_count> queues_{}, joins_{};
  std::string late_;           // the first error reported for an earlier launch
  std::vector<void*> events_;  // all of them
  std::vector<void*> timed_;   // two per action, then one for the start of the segment
  std::vector<ActionRecorder::Event> times_;
  void* border_ = nullptr;          // marks the end of earlier work on the compute queue
  std::array<void*, 2> settled_{};  // after the last two repetitions, alternating
  size_t runs_ = 0;
  std::vector<std::vector<Enqueued>> programs_;  // same indices as in the plan
};

}  // namespace

std::unique_ptr<Runner> run_on_queues(const Plan& plan, Device& device, Bound& bound, bool ranks, bool graphs) {
  return std::make_unique<Streams>(plan, device, bound, ranks, graphs);
}

}  // namespace eng
