// SPDX-License-Identifier: Apache-2.0
#include "core/execute/executor.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/plan/waits.hpp"

namespace eng {
namespace {

// Counts up, and wakes who waits for it.
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

constexpr eng_exec exec = {sizeof(eng_exec), 0, nullptr};
constexpr Queue all_queues[] = {Queue::compute, Queue::comm, Queue::h2d, Queue::d2h, Queue::io, Queue::host};
constexpr size_t at(Queue queue) {
  return static_cast<size_t>(queue);
}

// The clock is read only where there is something to wait for.
void wait_timed(const Counter& counter, uint32_t position, std::chrono::nanoseconds& waited) {
  if (counter.beyond(position)) return;
  const auto start = std::chrono::steady_clock::now();
  counter.wait_beyond(position);
  waited += std::chrono::steady_clock::now() - start;
}

// Whose kernel an op has, for messages.
std::string of_whom(const Op& op, const Plan& plan, const Communicator* comm) {
  return op.collective && comm ? "communicator " + comm->name() : "device " + plan.arenas[0].device;
}

}  // namespace

// An action of another queue to wait for, as the number of actions there that come before it.
struct Wait {
  Queue queue;
  uint32_t position;
};

// One bound action.
struct Executor::Step {
  const eng_kernel* kernel;
  void* record;
  const Action* action;
  std::vector<Wait> waits;
};

// One queue of a segment.
struct Executor::Lane {
  std::vector<Step> steps;
  Counter done;  // steps, in this run of the segment
};

struct Executor::Bound {
  const Segment* segment = nullptr;
  std::array<Lane, queue_count> lanes;
  bool alone = true;  // no other queue than compute
};

// The thread of a queue.
struct Executor::Worker {
  Counter started, finished;  // runs of segments
  uint32_t runs = 0;
  Bound* bound = nullptr;  // nullptr: no more
  std::thread thread;
};

Executor::Executor(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm)
    : plan_(plan), device_(device), comm_(comm) {
  try {
    for (const Arena& arena : plan.arenas) arenas_.push_back(device.alloc(arena.total()));
    for (const Call& call : plan.calls) prepare(call, kernels);
    for (const Program& program : plan.programs) {
      programs_.emplace_back();
      for (const Segment& segment : program.segments) {
        programs_.back().push_back(std::make_unique<Bound>());
        bind(*programs_.back().back(), segment, kernels);
      }
    }
    for (size_t k = 0; k < plan.constants.size(); ++k) upload(plan.constants[k], plan.constant_data[k].data());
  } catch (...) {
    release();
    throw;
  }
}

Executor::~Executor() {
  release();
}

void Executor::release() {
  for (auto& worker : workers_)
    if (worker) {
      worker->bound = nullptr;
      worker->started.add();
      worker->thread.join();
    }
  for (auto& program : programs_)
    for (auto& bound : program)
      for (Lane& lane : bound->lanes)
        for (Step& step : lane.steps)
          if (step.record) step.kernel->drop_record(step.record);
  for (Prepared& p : calls_)
    if (p.state) p.kernel->drop_state(p.state);
  for (size_t k = 0; k < arenas_.size(); ++k) device_.free(arenas_[k], plan_.arenas[k].total());
}

void Executor::prepare(const Call& call, const Kernels& kernels) {
  const bool collective = call.op->collective;
  if (collective && !comm_)
    throw Error(Exit::bug, fmt::format("{} is between ranks, and there is no communicator", call.op->id));
  calls_.push_back({collective ? &comm_->find(call) : &kernels.find(call), nullptr});
  CallArgs args(call, collective ? 1 : kernels.info().parallel);
  Sink sink;
  sink.check(calls_.back().kernel->prepare(collective ? comm_->self() : device_.self(), args.get(),
                                           &calls_.back().state, sink.get()),
             Exit::environment, fmt::format("{}, {}", of_whom(*call.op, plan_, comm_), call.op->id));
}

uint8_t* Executor::address(const View& view) const {
  const Buffer& b = plan_.buffer(view.buffer);
  return static_cast<uint8_t*>(arenas_[b.arena]) + b.offset + view.offset;
}

void* Executor::bind(const Action& action, const Kernels& kernels) {
  const eng_device_info& info = kernels.info();
  const size_t n = action.in.size() + action.out.size();
  std::vector<DLTensor> tensors(n);
  std::vector<std::array<int64_t, ENG_MAX_DIMS>> strides(n);
  std::vector<const DLTensor*> args(n, nullptr);
  for (size_t k = 0; k < n; ++k) {
    const View& v = k < action.in.size() ? action.in[k] : action.out[k - action.in.size()];
    if (!v.buffer) continue;
    const eng_desc& d = v.desc;
    strides[k].fill(1);
    for (uint32_t i = d.ndim; i-- > 1;) strides[k][i - 1] = strides[k][i] * d.dims[i];
    tensors[k] = {address(v),
                  {static_cast<DLDeviceType>(info.dl_device_type), info.dl_device_id},
                  static_cast<int32_t>(d.ndim),
                  dtype_dlpack(d.dtype),
                  const_cast<int64_t*>(d.dims),
                  strides[k].data(),
                  0};
    args[k] = &tensors[k];
  }
  const Prepared& call = calls_[action.call];
  void* scratch = action.workspace.buffer ? address(action.workspace) : nullptr;
  void* record = nullptr;
  Sink sink;
  sink.check(call.kernel->bind(call.state, args.data(), static_cast<uint32_t>(n), scratch, &record, sink.get()),
             Exit::environment,
             fmt::format("{}, {} in {}", of_whom(*plan_.calls[action.call].op, plan_, comm_),
                         plan_.calls[action.call].op->id, plan_.labels[action.block].text()));
  return record;
}

void Executor::bind(Bound& bound, const Segment& segment, const Kernels& kernels) {
  bound.segment = &segment;
  const Order order = order_of(segment);
  for (const Action& action : segment.actions) {
    std::vector<Step>& steps = bound.lanes[at(action.queue)].steps;
    steps.push_back({calls_[action.call].kernel, nullptr, &action, {}});
    steps.back().record = bind(action, kernels);
    for (uint32_t w : action.waits) steps.back().waits.push_back({segment.actions[w].queue, order.position[w]});
    if (action.queue == Queue::compute) continue;
    bound.alone = false;
    if (workers_[at(action.queue)]) continue;
    Worker& worker = *(workers_[at(action.queue)] = std::make_unique<Worker>());
    worker.thread = std::thread([this, &worker, queue = action.queue] {
      for (uint32_t round = 0;; ++round) {
        worker.started.wait_beyond(round);
        if (!worker.bound) return;
        run(*worker.bound, queue);
        worker.finished.add();
      }
    });
  }
}

// What fails is told by the first to fail; the others go on without launching, so that nobody waits for ever.
void Executor::launch(const Step& step) {
  Sink sink;
  const eng_status status = step.kernel->launch(step.record, &exec, sink.get());
  if (status == ENG_OK || failed_.exchange(true)) return;
  const Op& op = *plan_.calls[step.action->call].op;
  const bool others = (comm_ && status == ENG_UNAVAILABLE) || op.collective || step.action->queue == Queue::comm;
  exit_ = others ? Exit::communication : Exit::environment;
  failure_ = fmt::format("{}, {} in {}: {}", of_whom(op, plan_, comm_), op.id, plan_.labels[step.action->block].text(),
                         sink.text(status));
}

void Executor::run(Bound& bound, Queue queue) {
  Lane& lane = bound.lanes[at(queue)];
  std::chrono::nanoseconds waited{0};
  for (const Step& step : lane.steps) {
    Recorder::Event event{};
    if (recorder_) event.reached = Recorder::Clock::now();
    for (const Wait& wait : step.waits) wait_timed(bound.lanes[at(wait.queue)].done, wait.position, waited);
    if (recorder_) event.begin = Recorder::Clock::now();
    if (!failed_.load(std::memory_order_relaxed)) launch(step);
    if (recorder_) {
      event.end = Recorder::Clock::now();
      event.call = step.action->call, event.block = step.action->block, event.queue = queue;
      recorder_->add(event);
    }
    if (!bound.alone) lane.done.add();
  }
  if (queue == Queue::compute) waited_ += waited;
}

void Executor::run(Bound& bound) {
  if (bound.alone) return run(bound, Queue::compute);
  for (Lane& lane : bound.lanes) lane.done.reset();
  for (Queue queue : all_queues)
    if (queue != Queue::compute && !bound.lanes[at(queue)].steps.empty()) {
      workers_[at(queue)]->bound = &bound;
      workers_[at(queue)]->started.add();
    }
  run(bound, Queue::compute);
  for (Queue queue : all_queues)
    if (queue != Queue::compute && !bound.lanes[at(queue)].steps.empty())
      wait_timed(workers_[at(queue)]->finished, workers_[at(queue)]->runs++, waited_);
}

std::vector<std::unique_ptr<Executor::Bound>>& Executor::segments(const std::string& program) {
  return programs_[static_cast<size_t>(&plan_.program(program) - plan_.programs.data())];
}

bool Executor::run(const std::string& program, bool (*stop)()) {
  auto& all = segments(program);
  failed_ = false;
  waited_ = waited_.zero();
  bool stopped = false;
  for (auto& bound : all)
    for (uint32_t r = 0; r < bound->segment->repeat && !stopped; ++r) {
      const bool begun = bound != all.front() || r > 0, last = bound == all.back();
      stopped = begun && !last && stop && stop();
      if (!stopped) run(*bound);
    }
  device_.sync();
  if (failed_) throw Error(exit_, failure_);
  return !stopped;
}

std::string Executor::locate(const std::string& program) {
  std::vector<char> staging;
  std::string first;
  for (auto& bound : segments(program)) {
    // List order respects every wait, so one thread may run all queues.
    std::vector<const Step*> steps(bound->segment->actions.size());
    for (const Lane& lane : bound->lanes)
      for (const Step& step : lane.steps)
        steps[static_cast<size_t>(step.action - bound->segment->actions.data())] = &step;
    for (size_t k = 0; k < steps.size() * bound->segment->repeat; ++k) {
      const Step* step = steps[k % steps.size()];
      const Action& action = *step->action;
      const char* name = plan_.calls[action.call].op->id;
      Sink sink;
      sink.check(step->kernel->launch(step->record, &exec, sink.get()), Exit::environment,
                 [&] { return of_whom(*plan_.calls[action.call].op, plan_, comm_) + ", " + name; });
      device_.sync();
      for (size_t o = 0; o < action.out.size() && first.empty(); ++o) {
        const eng_desc& d = action.out[o].desc;
        if (d.dtype != ENG_F32 && d.dtype != ENG_F64) continue;
        staging.resize(bytes(d));
        download(staging.data(), action.out[o]);
        auto finite = [n = count(d)](const auto* x) {
          return std::all_of(x, x + n, [](auto value) { return std::isfinite(value); });
        };
        if (!(d.dtype == ENG_F32 ? finite(reinterpret_cast<const float*>(staging.data()))
                                 : finite(reinterpret_cast<const double*>(staging.data()))))
          first = fmt::format("{} in {}, output {} {}", name, plan_.labels[action.block].text(), o, describe(d));
      }
      // Other ranks may have found nothing yet, and need this one to the end.
      if (!first.empty() && !comm_) return first;
    }
  }
  return first;
}

}  // namespace eng
