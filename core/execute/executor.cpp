// SPDX-License-Identifier: Apache-2.0
#include "core/execute/executor.hpp"

#include <cstring>

namespace eng {

Executor::Executor(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm, bool graphs,
                   Host* host, const std::function<void()>& collectives_next)
    : plan_(plan), device_(device), comm_(comm), bound_(plan, device, kernels, comm, host, collectives_next) {
  const uint32_t flags = kernels.info().flags;
  runner_ = flags & ENG_DEVICE_ASYNC ? run_on_queues(plan, device, bound_, comm, graphs && (flags & ENG_DEVICE_GRAPHS))
                                     : run_on_threads(plan, device, bound_, comm);
  for (size_t k = 0; k < plan.constants.size(); ++k) {
    const Constant& constant = *plan.constant_data[k];
    if (constant.data.empty()) throw Error(Exit::bug, "this plan was made without the data of its constants");
    upload(plan.constants[k], constant.data.data());
  }
}

bool Executor::run(const std::string& program, bool (*stop)()) {
  const auto p = static_cast<size_t>(&plan_.program(program) - plan_.programs.data());
  const std::vector<BoundSegment>& all = bound_.programs[p];
  // Collectives that are only enqueued: what the queues end with means nothing if one has failed.
  const bool enqueued = comm_ && !comm_->on_host();
  if (enqueued) comm_->check();
  runner_->begin();
  bool stopped = false;
  for (size_t s = 0; s < all.size(); ++s)
    for (uint32_t r = 0; r < all[s].segment->repeat && !stopped; ++r) {
      const bool begun = s > 0 || r > 0, last = s + 1 == all.size();
      if (stop && begun && !last) runner_->settle(), stopped = stop();
      if (!stopped) runner_->run(p, s);
    }
  const auto text = runner_->finish();
  if (enqueued) comm_->check();
  if (text) throw late(program, *text);
  if (runner_->failed()) throw runner_->failure();
  return !stopped;
}

template <class Visit>
void Executor::each(const std::string& program, bool collectives, Visit visit) {
  for (const BoundSegment& segment : bound_.segments(program))
    for (uint32_t r = 0; r < segment.segment->repeat; ++r)
      for (const BoundAction& one : segment.actions) {
        if (!collectives && plan_.calls[one.action->call].op->collective) continue;
        eng_exec exec = runner_->where(one.action->queue);
        if (one.others) exec.queue = nullptr;
        const auto name = [&] { return bound_.name(one); };
        call_plugin(Exit::environment, name, one.kernel->launch, one.record, &exec);
        call_plugin(Exit::environment, name, device_.table().sync, device_.self(), nullptr);
        if (visit(one)) return;
      }
}

// Runs the program again, action by action, to name the one that fails. Skips collectives: the other ranks do not run
// it again.
Error Executor::late(const std::string& program, const std::string& text) {
  // A device that does not come back would have the first action, which is innocent, say so.
  Sink sink;
  if (device_.table().sync(device_.self(), nullptr, sink.get()) != ENG_OK)
    return runner_->failed() ? runner_->failure()
                             : Error(Exit::environment, text + fmt::format(" (in program {})", program));
  try {
    each(program, false, [](const BoundAction&) { return false; });
  } catch (const Error& e) {
    return e;
  }
  return Error(Exit::environment,
               text + fmt::format(" (in program {}; no action fails when they run one by one)", program));
}

std::string Executor::locate(const std::string& program) {
  std::vector<char> staging;
  std::string first;
  each(program, true, [&](const BoundAction& one) {
    const Action& action = *one.action;
    for (size_t o = 0; o < action.out.size() && first.empty(); ++o) {
      const eng_desc& d = action.out[o].desc;
      if (!is_float(d.dtype)) continue;
      staging.resize(bytes(d));
      download(staging.data(), action.out[o]);
      if (!all_finite(staging.data(), d.dtype, element_count(d)))
        first = fmt::format("{} in {}, output {} {}", plan_.calls[action.call].op->id,
                            plan_.labels[action.label].text(), o, describe(d));
    }
    // Other ranks may not have found anything and need this one in all collectives.
    return !first.empty() && !comm_;
  });
  return first;
}

void Executor::upload(const View& to, uint64_t byte, const void* from, uint64_t n) {
  if (plan_.in_storage(to))
    bound_.write(to, byte, from, n);
  else if (plan_.in_host_arena(to))
    std::memcpy(address(to) + byte, from, n);
  else
    device_.upload(address(to) + byte, from, n);
}

void Executor::download(void* to, const View& from, uint64_t byte, uint64_t n) {
  if (plan_.in_storage(from))
    bound_.read(from, byte, to, n);
  else if (plan_.in_host_arena(from))
    std::memcpy(to, address(from) + byte, n);
  else
    device_.download(to, address(from) + byte, n);
}

uint8_t* Executor::host_bytes(const View& view) const {
  if (!bound_.on_host(view))
    throw Error(Exit::bug, fmt::format("{} is not in host memory", plan_.buffer(view.buffer).name));
  return address(view);
}

}  // namespace eng
