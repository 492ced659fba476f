// SPDX-License-Identifier: Apache-2.0
#include "core/execute/executor.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/base/error.hpp"
#include "core/plan/waits.hpp"
#include "core/tensor/dtype.hpp"

namespace eng {

// One bound action.
struct Executor::Step {
  const eng_kernel* kernel = nullptr;
  void* record = nullptr;
  uint32_t first_wait = 0, n_waits = 0;  // in Bound::waits
  uint32_t action = 0;
};

// An action of another queue to wait for: that queue's count of finished actions must exceed `position`.
struct Wait {
  uint32_t lane, position;
};

// A worker for one queue other than the first; the caller's thread runs the first.
struct Executor::Lane {
  size_t index = 0;
  std::vector<Step> steps;
  std::atomic<uint32_t> done{0};   // steps finished in this run of the segment
  std::atomic<uint32_t> round{0};  // incremented to start one run
  std::atomic<uint32_t> finished{0};
  std::thread thread;
};

struct Executor::Bound {
  const Segment* segment = nullptr;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Wait> waits;
  std::atomic<bool> stop{false};
};

namespace {

constexpr eng_exec exec = {sizeof(eng_exec), 0, nullptr};

// Blocks until the counter exceeds `position`.
void wait_for(std::atomic<uint32_t>& counter, uint32_t position) {
  for (uint32_t now = counter.load(std::memory_order_acquire); now <= position;
       now = counter.load(std::memory_order_acquire))
    counter.wait(now, std::memory_order_acquire);
}

void publish(std::atomic<uint32_t>& counter, uint32_t value) {
  counter.store(value, std::memory_order_release);
  counter.notify_all();
}

}  // namespace

Executor::Executor(const Plan& plan, Device& device, const Kernels& kernels) : plan_(plan), device_(device) {
  try {
    for (const Arena& arena : plan.arenas) arenas_.push_back(device.alloc(arena.total()));
    bind(plan, kernels, kernels.info().parallel);
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
  for (Program& program : programs_)
    for (auto& bound : program.segments) {
      bound->stop = true;
      for (auto& lane : bound->lanes) {
        if (lane->thread.joinable()) {
          publish(lane->round, lane->round.load() + 1);
          lane->thread.join();
        }
        for (Step& step : lane->steps)
          if (step.record) step.kernel->drop_record(step.record);
      }
    }
  programs_.clear();
  for (Prepared& p : calls_)
    if (p.state) p.kernel->drop_state(p.state);
  calls_.clear();
  for (size_t k = 0; k < arenas_.size(); ++k) device_.free(arenas_[k], plan_.arenas[k].total());
  arenas_.clear();
}

uint8_t* Executor::address(const View& view) const {
  const Buffer& b = plan_.buffer(view.buffer);
  return static_cast<uint8_t*>(arenas_[b.arena]) + b.offset + view.offset;
}

void Executor::bind(const Plan& plan, const Kernels& kernels, uint32_t parallel) {
  for (const Call& call : plan.calls) {
    Prepared p{&kernels.find(call), nullptr};
    CallArgs args(call, parallel);
    Sink sink;
    sink.check(p.kernel->prepare(device_.self(), args.get(), &p.state, sink.get()), Exit::environment,
               fmt::format("device {}, {}", kernels.device(), call.op->id));
    calls_.push_back(p);
  }
  for (const eng::Program& program : plan.programs) {
    programs_.push_back({program.name, {}, {}});
    for (const Segment& segment : program.segments) {
      programs_.back().repeats.push_back(segment.repeat);
      programs_.back().segments.push_back(std::make_unique<Bound>());
      Bound& bound = *programs_.back().segments.back();
      bound.segment = &segment;
      Order order = order_of(segment);
      std::array<uint32_t, queue_count> lane_of{};
      std::array<bool, queue_count> known{};
      for (const Action& action : segment.actions) {
        size_t q = static_cast<size_t>(action.queue);
        if (known[q]) continue;
        known[q] = true;
        lane_of[q] = static_cast<uint32_t>(bound.lanes.size());
        bound.lanes.push_back(std::make_unique<Lane>());
        bound.lanes.back()->index = lane_of[q];
      }
      for (uint32_t a = 0; a < segment.actions.size(); ++a) {
        const Action& action = segment.actions[a];
        std::vector<const View*> views;
        for (const View& v : action.in) views.push_back(&v);
        for (const View& v : action.out) views.push_back(&v);
        std::vector<DLTensor> tensors(views.size());
        std::vector<const DLTensor*> args(views.size(), nullptr);
        std::vector<std::vector<int64_t>> strides(views.size());
        for (size_t k = 0; k < views.size(); ++k) {
          if (!views[k]->buffer) continue;
          const eng_desc& d = views[k]->desc;
          strides[k].resize(d.ndim, 1);
          for (uint32_t i = d.ndim; i-- > 1;) strides[k][i - 1] = strides[k][i] * d.dims[i];
          DLDevice where{static_cast<DLDeviceType>(kernels.info().dl_device_type), kernels.info().dl_device_id};
          tensors[k] = DLTensor{address(*views[k]),
                                where,
                                static_cast<int32_t>(d.ndim),
                                dtype_dlpack(d.dtype),
                                const_cast<int64_t*>(d.dims),
                                strides[k].data(),
                                0};
          args[k] = &tensors[k];
        }
        Prepared& prepared = calls_[action.call];
        Step step;
        step.kernel = prepared.kernel;
        step.action = a;
        Sink sink;
        sink.check(prepared.kernel->bind(prepared.state, args.data(), static_cast<uint32_t>(args.size()),
                                         action.workspace.buffer ? address(action.workspace) : nullptr, &step.record,
                                         sink.get()),
                   Exit::environment,
                   fmt::format("device {}, {} in {}", kernels.device(), plan.calls[action.call].op->id,
                               plan.labels[action.block]));
        step.first_wait = static_cast<uint32_t>(bound.waits.size());
        for (uint32_t w : action.waits)
          bound.waits.push_back({lane_of[static_cast<size_t>(segment.actions[w].queue)], order.position[w]});
        step.n_waits = static_cast<uint32_t>(action.waits.size());
        bound.lanes[lane_of[static_cast<size_t>(action.queue)]]->steps.push_back(step);
      }
      for (size_t k = 1; k < bound.lanes.size(); ++k) {
        Lane* lane = bound.lanes[k].get();
        lane->thread = std::thread([this, &bound, lane] {
          for (uint32_t round = 0;; ++round) {
            wait_for(lane->round, round);
            if (bound.stop) return;
            run_lane(bound, lane->index);
            publish(lane->finished, round + 1);
          }
        });
      }
    }
  }
}

void Executor::run_lane(const Bound& bound, size_t index) {
  Lane& lane = *bound.lanes[index];
  for (uint32_t k = 0; k < lane.steps.size(); ++k) {
    const Step& step = lane.steps[k];
    for (uint32_t w = 0; w < step.n_waits; ++w) {
      const Wait& wait = bound.waits[step.first_wait + w];
      wait_for(bound.lanes[wait.lane]->done, wait.position);
    }
    if (failed_.load(std::memory_order_relaxed) == 0) {
      Sink sink;
      eng_status status = step.kernel->launch(step.record, &exec, sink.get());
      int32_t none = 0;
      if (status != ENG_OK && failed_.compare_exchange_strong(none, status)) {
        const Action& action = bound.segment->actions[step.action];
        failure_ =
            fmt::format("{} in {}: {}", plan_.calls[action.call].op->id, plan_.labels[action.block], sink.text());
      }
    }
    if (bound.lanes.size() > 1) publish(lane.done, k + 1);
  }
}

void Executor::run_segment(const Bound& bound) {
  if (bound.lanes.empty()) return;
  for (auto& lane : bound.lanes) lane->done.store(0, std::memory_order_relaxed);
  for (size_t k = 1; k < bound.lanes.size(); ++k) publish(bound.lanes[k]->round, bound.lanes[k]->round.load() + 1);
  run_lane(bound, 0);
  for (size_t k = 1; k < bound.lanes.size(); ++k) wait_for(bound.lanes[k]->finished, bound.lanes[k]->round.load() - 1);
}

Executor::Program& Executor::find(const std::string& name) {
  for (Program& program : programs_)
    if (program.name == name) return program;
  throw Error(Exit::bug, "the plan has no program `" + name + "`");
}

bool Executor::run(const std::string& name, bool (*stop)()) {
  Program& program = find(name);
  failed_ = 0;
  bool stopped = false;
  for (size_t s = 0; s < program.segments.size() && !stopped; ++s)
    for (uint32_t r = 0; r < program.repeats[s] && !stopped; ++r) {
      run_segment(*program.segments[s]);
      bool ahead =
          s + 1 < program.segments.size() && !(s + 2 == program.segments.size() && r + 1 == program.repeats[s]);
      stopped = ahead && stop && stop();
    }
  device_.sync();
  if (failed_.load() != 0) throw Error(Exit::environment, failure_);
  return !stopped;
}

std::string Executor::locate(const std::string& name) {
  std::vector<char> staging;
  for (auto& bound : find(name).segments) {
    // List order respects every wait, so one thread may run all queues.
    std::vector<const Step*> steps(bound->segment->actions.size());
    for (auto& lane : bound->lanes)
      for (const Step& step : lane->steps) steps[step.action] = &step;
    for (const Step* step : steps) {
      const Action& action = bound->segment->actions[step->action];
      const Call& call = plan_.calls[action.call];
      Sink sink;
      sink.check(step->kernel->launch(step->record, &exec, sink.get()), Exit::environment, call.op->id);
      device_.sync();
      for (size_t k = 0; k < action.out.size(); ++k) {
        const eng_desc& d = action.out[k].desc;
        if (d.dtype != ENG_F32 && d.dtype != ENG_F64) continue;
        staging.resize(bytes(d));
        download(staging.data(), action.out[k]);
        bool finite = true;
        for (int64_t e = 0; e < count(d) && finite; ++e)
          finite = std::isfinite(d.dtype == ENG_F32 ? reinterpret_cast<const float*>(staging.data())[e]
                                                    : reinterpret_cast<const double*>(staging.data())[e]);
        if (!finite)
          return fmt::format("{} in {}, output {} {}", call.op->id, plan_.labels[action.block], k, describe(d));
      }
    }
  }
  return "";
}

void Executor::upload(const View& to, const void* from) {
  device_.upload(address(to), from, bytes(to.desc));
}
void Executor::download(void* to, const View& from) {
  device_.download(to, address(from), bytes(from.desc));
}
void Executor::upload(const View& to, uint64_t byte, const void* from, uint64_t n) {
  device_.upload(address(to) + byte, from, n);
}
void Executor::download(void* to, const View& from, uint64_t byte, uint64_t n) {
  device_.download(to, address(from) + byte, n);
}

}  // namespace eng
