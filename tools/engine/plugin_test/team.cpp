// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/team.hpp"

#include <algorithm>
#include <array>

#include "engine/ops.h"

namespace eng::plugin_test {

Team::Team(const std::vector<Plan>& plans, Machine& machine) : machine_(machine), ranks_(plans.size()) {
  if (!machine.kernels().host_memory())
    throw Untested("plans of several ranks run here on devices whose memory is the host's alone");
  for (size_t r = 0; r < plans.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.plan = &plans[r];
    for (const Arena& arena : plans[r].arenas) {
      if (arena.total() > uint64_t{4} << 30)
        throw Broken(fmt::format("the plan of a small run needs {}, {} of it for scratch of kernels",
                                 format_bytes(static_cast<double>(arena.total())),
                                 format_bytes(static_cast<double>(arena.workspace))));
      rank.arenas.emplace_back(arena.total());
    }
    for (const Call& call : plans[r].calls) {
      rank.states.push_back(nullptr);
      if (call.op->collective) continue;
      const Kernels& kernels = machine.kernels().serving(call);
      const CallArgs args(call, kernels.info().parallel, &kernels.info());
      Sink sink;
      sink.check(
          kernels.find(call).prepare(machine.device().of(kernels).self(), args.get(), &rank.states.back(), sink.get()),
          Exit::environment, call.op->id);
    }
    for (const Program& program : plans[r].programs) {
      auto& segments = rank.programs.emplace_back();
      for (const Segment& segment : program.segments)
        for (auto& list = segments.emplace_back(); const Action& action : segment.actions)
          bind(rank, list.emplace_back(Bound{&action, &plans[r].calls[action.call]}));
    }
    for (size_t k = 0; k < plans[r].constants.size(); ++k)
      std::memcpy(address(r, plans[r].constants[k]), plans[r].constant_data[k]->data.data(),
                  bytes(plans[r].constants[k].desc));
  }
}

Team::~Team() {
  for (Rank& rank : ranks_) {
    for (auto& program : rank.programs)
      for (auto& segment : program)
        for (Bound& bound : segment)
          if (bound.record) bound.kernel->drop_record(bound.record);
    for (size_t c = 0; c < rank.states.size(); ++c)
      if (rank.states[c]) machine_.kernels().find(rank.plan->calls[c]).drop_state(rank.states[c]);
  }
}

uint8_t* Team::address(size_t rank, const View& view) {
  const Buffer& buffer = ranks_[rank].plan->buffer(view.buffer);
  return ranks_[rank].arenas[buffer.arena].data() + buffer.offset + view.offset;
}

void Team::bind(Rank& rank, Bound& bound) {
  if (bound.call->op->collective) return;
  const Action& action = *bound.action;
  const size_t n = action.in.size() + action.out.size();
  std::vector<DLTensor> tensors(n);
  std::vector<std::array<int64_t, ENG_MAX_DIMS>> strides(n);
  std::vector<const DLTensor*> args(n, nullptr);
  const auto r = static_cast<size_t>(&rank - ranks_.data());
  for (size_t k = 0; k < n; ++k) {
    const View& v = k < action.in.size() ? action.in[k] : action.out[k - action.in.size()];
    if (!v.buffer) continue;
    const eng_desc& d = v.desc;
    strides[k].fill(1);
    for (uint32_t i = d.ndim; i-- > 1;) strides[k][i - 1] = strides[k][i] * d.dims[i];
    tensors[k] = {address(r, v),
                  {kDLCPU, 0},
                  static_cast<int32_t>(d.ndim),
                  dtype_dlpack(d.dtype),
                  const_cast<int64_t*>(d.dims),
                  strides[k].data(),
                  0};
    args[k] = &tensors[k];
  }
  bound.kernel = &machine_.kernels().find(*bound.call);
  Sink sink;
  sink.check(
      bound.kernel->bind(rank.states[action.call], args.data(), static_cast<uint32_t>(n),
                         action.workspace.buffer ? address(r, action.workspace) : nullptr, &bound.record, sink.get()),
      Exit::environment, bound.call->op->id);
}

void Team::launch(size_t rank, const Bound& bound) {
  if (observe && rank == 0)
    observe(*bound.call, [&](size_t k) {
      const View& view = bound.action->in[k];
      if (!view.buffer) return Array();
      Array out(view.desc);
      std::memcpy(out.bytes.data(), address(0, view), out.bytes.size());
      return out;
    });
  const eng_exec exec = {sizeof(eng_exec), 0, nullptr};
  Sink sink;
  sink.check(bound.kernel->launch(bound.record, &exec, sink.get()), Exit::environment,
             [&] { return bound.call->op->id + std::string(" in ") + plan(rank).labels[bound.action->label].text(); });
}

void Team::run(const std::string& program) {
  const auto number = static_cast<size_t>(&plan(0).program(program) - plan(0).programs.data());
  for (size_t segment = 0; segment < ranks_[0].programs[number].size(); ++segment)
    for (uint32_t time = 0; time < plan(0).programs[number].segments[segment].repeat; ++time) {
      std::vector<size_t> at(size(), 0);
      bool moved = true;
      while (moved) {
        moved = false;
        for (size_t r = 0; r < size(); ++r)
          for (const auto& list = ranks_[r].programs[number][segment];
               at[r] < list.size() && !list[at[r]].call->op->collective; ++at[r], moved = true)
            launch(r, list[at[r]]);
        moved = collect(number, segment, at) || moved;
      }
      for (size_t r = 0; r < size(); ++r)
        if (const auto& list = ranks_[r].programs[number][segment]; at[r] < list.size())
          throw Broken(fmt::format("program {}: rank {} of {} waits for ever for others in {}", program, r, size(),
                                   text_of(*list[at[r]].call)));
    }
}

// Does every collective that all its members have reached. Whether there was one.
bool Team::collect(size_t program, size_t segment, std::vector<size_t>& at) {
  bool any = false;
  for (size_t r = 0; r < size(); ++r) {
    const auto here = [&](size_t rank) -> const Bound* {
      const auto& list = ranks_[rank].programs[program][segment];
      return at[rank] < list.size() ? &list[at[rank]] : nullptr;
    };
    const Bound* mine = here(r);
    if (!mine || !mine->call->op->collective) continue;
    const int64_t id = mine->call->attrs.i("group");
    const std::vector<uint32_t>& group = plan(r).ranks.group(static_cast<Id>(id));
    std::vector<const Bound*> all;
    for (uint32_t member : group)
      if (const Bound* theirs = here(member);
          theirs && theirs->call->op == mine->call->op &&
          plan(member).ranks.group(static_cast<Id>(theirs->call->attrs.i("group"))) == group)
        all.push_back(theirs);
    if (all.size() < group.size()) continue;
    exchange(group, all);
    for (uint32_t member : group) ++at[member];
    any = true;
  }
  return any;
}

void Team::exchange(const std::vector<uint32_t>& group, const std::vector<const Bound*>& bound) {
  const std::string op = bound[0]->call->op->id;
  std::vector<std::vector<uint8_t>> given;
  for (size_t k = 0; k < group.size(); ++k) {
    const View& in = bound[k]->action->in[0];
    const uint8_t* from = address(group[k], in);
    given.emplace_back(from, from + bytes(in.desc));
    if (given[k].size() != given[0].size())
      throw Broken(fmt::format("{}: rank {} gives {} bytes, rank {} gives {}", op, group[0], given[0].size(), group[k],
                               given[k].size()));
  }
  const size_t n = given[0].size(), part = n / group.size();
  for (size_t k = 0; k < group.size(); ++k) {
    uint8_t* to = address(group[k], bound[k]->action->out[0]);
    if (op == ENG_OP_ALL_GATHER)
      for (size_t j = 0; j < given.size(); ++j) std::memcpy(to + j * n, given[j].data(), n);
    else if (op == ENG_OP_ALL_TO_ALL)
      for (size_t j = 0; j < given.size(); ++j) std::memcpy(to + j * part, given[j].data() + k * part, part);
    else if (op == ENG_OP_BROADCAST)
      std::memcpy(to, given[static_cast<size_t>(bound[k]->call->attrs.i("root"))].data(), n);
    else
      throw Untested(op + ": its order of summation is the library's own");
  }
}

}  // namespace eng::plugin_test
