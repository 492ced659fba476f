// SPDX-License-Identifier: Apache-2.0
#include "session/report/traffic.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/tensor/dtype.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

bool is(const Call& call, const char* id) {
  return std::string(call.op->id) == id;
}

// Whether one of the views lies in one of the buffers.
bool touches(const std::vector<View>& views, const std::vector<Id>& buffers) {
  return std::any_of(views.begin(), views.end(), [&](const View& v) {
    return v.buffer && std::find(buffers.begin(), buffers.end(), v.buffer) != buffers.end();
  });
}

// The purpose of a gather: the phase of the first action that reads what the actions of its label wrote.
Phase reader(const Plan& plan, const Segment& segment, size_t at) {
  std::vector<Id> written;
  const uint32_t label = segment.actions[at].block;
  for (; at < segment.actions.size(); ++at) {
    const Action& action = segment.actions[at];
    if (action.block != label && touches(action.in, written)) return plan.labels[action.block].phase;
    if (action.block == label)
      for (const View& v : action.out) written.push_back(v.buffer);
  }
  return Phase::step;
}

std::string purpose(const Plan& plan, const Segment& segment, size_t at) {
  const Phase phase = plan.labels[segment.actions[at].block].phase;
  if (phase == Phase::reduce) return "gradients, sum";
  if (phase == Phase::publish) return "weights, publish";
  if (phase != Phase::gather) return Label{phase}.text();  // "norm", "losses"
  const Phase by = reader(plan, segment, at);
  if (by == Phase::forward) return "weights, forward";
  if (by == Phase::backward) return "weights, backward";
  return by == Phase::update ? "gradients, whole" : "weights";
}

// The time of one action; without `collectives`, collectives take none.
double seconds(const Plan& plan, const Call& call, const Machine& m, bool collectives) {
  if (call.op->collective) return collectives ? collective_seconds(plan, call, m) : 0;
  double moved = 0;
  for (const auto& list : {call.in, call.out})
    for (const eng_desc& desc : list) moved += static_cast<double>(bytes(desc));
  return std::max(m.flops > 0 ? call.flops / m.flops : 0, m.memory_bandwidth > 0 ? moved / m.memory_bandwidth : 0);
}

// All queues join at the end of a segment, so each repetition takes equally long.
double play(const Segment& segment, const std::vector<double>& cost) {
  std::array<double, queue_count> free{};
  std::vector<double> done;
  done.reserve(segment.actions.size());
  for (const Action& action : segment.actions) {
    double& queue = free[static_cast<size_t>(action.queue)];
    double start = queue;
    for (uint32_t w : action.waits) start = std::max(start, done[w]);
    done.push_back(queue = start + cost[action.call]);
  }
  return *std::max_element(free.begin(), free.end());
}

double play(const Plan& plan, const Machine& machine, bool collectives) {
  std::vector<double> cost;
  for (const Call& call : plan.calls) cost.push_back(seconds(plan, call, machine, collectives));
  double all = 0;
  for (const Segment& segment : plan.program("train").segments) all += segment.repeat * play(segment, cost);
  return all;
}

}  // namespace

uint64_t spread_elements(const Call& call) {
  const auto n = static_cast<uint64_t>(count(is(call, ENG_OP_ALL_GATHER) ? call.out[0] : call.in[0]));
  return is(call, ENG_OP_ALL_REDUCE) ? 2 * n : n;
}

uint64_t sent_bytes(const Call& call) {
  const auto m = static_cast<uint64_t>(call.attrs.i("members", 1));
  return (spread_elements(call) * dtype_size(call.in[0].dtype) * (m - 1) + m - 1) / m;
}

std::vector<Transfer> traffic(const Plan& plan) {
  std::vector<Transfer> out;
  for (const Segment& segment : plan.program("train").segments)
    for (size_t a = 0; a < segment.actions.size(); ++a) {
      const Call& call = plan.calls[segment.actions[a].call];
      if (!call.op->collective) continue;
      const std::string what = purpose(plan, segment, a);
      auto found = std::find_if(out.begin(), out.end(),
                                [&](const Transfer& t) { return t.op == call.op->id && t.purpose == what; });
      if (found == out.end()) found = out.insert(found, {call.op->id, what});
      found->count += segment.repeat;
      found->bytes += segment.repeat * sent_bytes(call);
      found->elements += segment.repeat * spread_elements(call);
    }
  return out;
}

uint64_t unit_elements(const Plan& plan) {
  uint64_t n = 0;
  for (const Unit& unit : plan.units) n += unit.count;
  return n;
}

Machine described(const Section& comm, double peak) {
  const auto number = [&](const char* key, double fallback) { return comm.has(key) ? comm.number(key) : fallback; };
  Machine m;
  m.flops = number("describe.flops", peak);
  m.memory_bandwidth = number("describe.memory_bandwidth", 0);
  m.ranks_per_node = static_cast<uint32_t>(number("describe.ranks_per_node", 1));
  m.bandwidth = number("describe.bandwidth", 0), m.latency = number("describe.latency", 0);
  m.node_bandwidth = number("describe.node_bandwidth", m.bandwidth);
  m.node_latency = number("describe.node_latency", m.latency);
  return m;
}

double collective_seconds(const Plan& plan, const Call& call, const Machine& machine) {
  const uint32_t own = plan.ranks.world.rank, per = machine.ranks_per_node;
  const auto& members = plan.ranks.group(static_cast<Id>(call.attrs.i("group", 1)));
  const auto near = static_cast<double>(
      std::count_if(members.begin(), members.end(), [&](uint32_t r) { return r != own && r / per == own / per; }));
  const double others = static_cast<double>(members.size() - 1), far = others - near;
  if (others < 1) return 0;
  const double message = static_cast<double>(sent_bytes(call)) / others;
  const auto link = [&](double messages, double bandwidth, double latency) {
    return std::ceil(std::log2(messages + 1)) * latency + (bandwidth > 0 ? messages * message / bandwidth : 0);
  };
  return std::max(link(far, machine.bandwidth, machine.latency),
                  link(near, machine.node_bandwidth, machine.node_latency));
}

StepTimes step_times(const Plan& plan, const Machine& machine) {
  StepTimes out;
  out.step = play(plan, machine, true);
  out.exposed = out.step - play(plan, machine, false);
  for (const Segment& segment : plan.program("train").segments)
    for (const Action& action : segment.actions)
      if (const Call& call = plan.calls[action.call]; call.op->collective)
        out.communication += segment.repeat * collective_seconds(plan, call, machine);
  return out;
}

}  // namespace eng
