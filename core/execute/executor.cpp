// SPDX-License-Identifier: Apache-2.0
#include "core/execute/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "core/base/error.hpp"
#include "core/plan/waits.hpp"
#include "core/tensor/dtype.hpp"

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
  void wait_beyond(uint32_t position) {
    for (uint32_t now; (now = value_.load(std::memory_order_acquire)) <= position;)
      value_.wait(now, std::memory_order_acquire);
  }

 private:
  std::atomic<uint32_t> value_{0};
};

constexpr eng_exec exec = {sizeof(eng_exec), 0, nullptr};

}  // namespace

// An action of another queue to wait for, as the number of actions there that come before it.
struct Wait {
  size_t lane;
  uint32_t position;
};

// One bound action.
struct Executor::Step {
  const eng_kernel* kernel;
  void* record;
  const Action* action;
  std::vector<Wait> waits;
};

// One queue of a segment. The caller's thread runs the first; each other one has a worker.
struct Executor::Lane {
  std::vector<Step> steps;
  Counter done;               // steps, in this run of the segment
  Counter started, finished;  // runs
  uint32_t runs = 0;
  std::thread thread;
};

struct Executor::Bound {
  const Segment* segment = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::atomic<bool> stop{false};
};

Executor::Executor(const Plan& plan, Device& device, const Kernels& kernels) : plan_(plan), device_(device) {
  try {
    for (const Arena& arena : plan.arenas) arenas_.push_back(device.alloc(arena.total()));
    for (const Call& call : plan.calls) {
      calls_.push_back({&kernels.find(call), nullptr});
      CallArgs args(call, kernels.info().parallel);
      Sink sink;
      sink.check(calls_.back().kernel->prepare(device_.self(), args.get(), &calls_.back().state, sink.get()),
                 Exit::environment, fmt::format("device {}, {}", kernels.device(), call.op->id));
    }
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
  for (auto& program : programs_)
    for (auto& bound : program) {
      bound->stop = true;
      for (auto& lane : bound->lanes) {
        lane->started.add();
        if (lane->thread.joinable()) lane->thread.join();
        for (Step& step : lane->steps)
          if (step.record) step.kernel->drop_record(step.record);
      }
    }
  for (Prepared& p : calls_)
    if (p.state) p.kernel->drop_state(p.state);
  for (size_t k = 0; k < arenas_.size(); ++k) device_.free(arenas_[k], plan_.arenas[k].total());
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
             fmt::format("device {}, {} in {}", kernels.device(), plan_.calls[action.call].op->id,
                         plan_.labels[action.block]));
  return record;
}

void Executor::bind(Bound& bound, const Segment& segment, const Kernels& kernels) {
  bound.segment = &segment;
  const Order order = order_of(segment);
  std::array<size_t, queue_count> lane_of{};
  std::array<bool, queue_count> known{};
  for (const Action& action : segment.actions) {
    const size_t queue = static_cast<size_t>(action.queue);
    if (!known[queue]) {
      known[queue] = true;
      lane_of[queue] = bound.lanes.size();
      bound.lanes.push_back(std::make_unique<Lane>());
    }
    Step step{calls_[action.call].kernel, bind(action, kernels), &action, {}};
    for (uint32_t w : action.waits)
      step.waits.push_back({lane_of[static_cast<size_t>(segment.actions[w].queue)], order.position[w]});
    bound.lanes[lane_of[queue]]->steps.push_back(std::move(step));
  }
  for (size_t k = 1; k < bound.lanes.size(); ++k)
    bound.lanes[k]->thread = std::thread([this, &bound, &lane = *bound.lanes[k]] {
      for (uint32_t round = 0;; ++round) {
        lane.started.wait_beyond(round);
        if (bound.stop) return;
        run(bound, lane);
        lane.finished.add();
      }
    });
}

void Executor::run(Bound& bound, Lane& lane) {
  for (const Step& step : lane.steps) {
    for (const Wait& wait : step.waits) bound.lanes[wait.lane]->done.wait_beyond(wait.position);
    if (failed_.load(std::memory_order_relaxed) == 0) {
      Sink sink;
      eng_status status = step.kernel->launch(step.record, &exec, sink.get());
      int32_t none = 0;
      if (status != ENG_OK && failed_.compare_exchange_strong(none, status))
        failure_ = fmt::format("{} in {}: {}", plan_.calls[step.action->call].op->id, plan_.labels[step.action->block],
                               sink.text());
    }
    if (bound.lanes.size() > 1) lane.done.add();
  }
}

void Executor::run(Bound& bound) {
  if (bound.lanes.empty()) return;
  for (auto& lane : bound.lanes) lane->done.reset();
  for (size_t k = 1; k < bound.lanes.size(); ++k) bound.lanes[k]->started.add();
  run(bound, *bound.lanes[0]);
  for (size_t k = 1; k < bound.lanes.size(); ++k) bound.lanes[k]->finished.wait_beyond(bound.lanes[k]->runs++);
}

std::vector<std::unique_ptr<Executor::Bound>>& Executor::segments(const std::string& program) {
  return programs_[static_cast<size_t>(&plan_.program(program) - plan_.programs.data())];
}

bool Executor::run(const std::string& program, bool (*stop)()) {
  auto& all = segments(program);
  failed_ = 0;
  bool stopped = false;
  for (auto& bound : all)
    for (uint32_t r = 0; r < bound->segment->repeat && !stopped; ++r) {
      const bool begun = bound != all.front() || r > 0, last = bound == all.back();
      stopped = begun && !last && stop && stop();
      if (!stopped) run(*bound);
    }
  device_.sync();
  if (failed_.load() != 0) throw Error(Exit::environment, failure_);
  return !stopped;
}

std::string Executor::locate(const std::string& program) {
  std::vector<char> staging;
  for (auto& bound : segments(program)) {
    // List order respects every wait, so one thread may run all queues.
    std::vector<const Step*> steps(bound->segment->actions.size());
    for (auto& lane : bound->lanes)
      for (const Step& step : lane->steps)
        steps[static_cast<size_t>(step.action - bound->segment->actions.data())] = &step;
    for (const Step* step : steps) {
      const Action& action = *step->action;
      const char* name = plan_.calls[action.call].op->id;
      Sink sink;
      sink.check(step->kernel->launch(step->record, &exec, sink.get()), Exit::environment, name);
      device_.sync();
      for (size_t k = 0; k < action.out.size(); ++k) {
        const eng_desc& d = action.out[k].desc;
        if (d.dtype != ENG_F32 && d.dtype != ENG_F64) continue;
        staging.resize(bytes(d));
        download(staging.data(), action.out[k]);
        auto finite = [n = count(d)](const auto* x) {
          return std::all_of(x, x + n, [](auto value) { return std::isfinite(value); });
        };
        if (!(d.dtype == ENG_F32 ? finite(reinterpret_cast<const float*>(staging.data()))
                                 : finite(reinterpret_cast<const double*>(staging.data()))))
          return fmt::format("{} in {}, output {} {}", name, plan_.labels[action.block], k, describe(d));
      }
    }
  }
  return "";
}

}  // namespace eng
