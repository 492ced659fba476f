// SPDX-License-Identifier: Apache-2.0
#include "session/planning/estimate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/plan/planner.hpp"
#include "core/tensor/dtype.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_parallel.h"
#include "engine/ops_step.h"
#include "session/model/fp8.hpp"
#include "session/model/pipeline.hpp"
#include "session/planning/cost.hpp"
#include "session/planning/traffic.hpp"

namespace eng {
namespace {

// The work that is simulated.
struct Counted {
  bool collectives = true, copies = true, host = true, storage = true;
  bool has(BoundBy what) const {
    return what == BoundBy::communication ? collectives
           : what == BoundBy::host_link   ? copies
           : what == BoundBy::storage     ? storage
                                          : what != BoundBy::host || host;
  }
};

std::vector<Cost> costs_of(const Plan& plan, const Topology& topology, const Segment& segment, const Machine& m) {
  std::vector<Cost> out;
  out.reserve(segment.actions.size());
  for (const Action& action : segment.actions) out.push_back(cost_of(plan, topology, action, m));
  return out;
}

// All queues join at the end of a segment, so each repetition takes equally long.
Simulated play(const Segment& segment, const std::vector<Cost>& costs, const Counted& counted) {
  std::array<double, queue_count> free{};
  Simulated out;
  out.actions.reserve(segment.actions.size());
  for (size_t a = 0; a < segment.actions.size(); ++a) {
    const Action& action = segment.actions[a];
    double& queue = free[static_cast<size_t>(action.queue)];
    double start = queue;
    for (uint32_t w : action.waits) start = std::max(start, out.actions[w].start + out.actions[w].seconds);
    out.actions.push_back({start, counted.has(costs[a].by) ? costs[a].seconds : 0, costs[a].by});
    queue = start + out.actions.back().seconds;
  }
  out.seconds = *std::max_element(free.begin(), free.end());
  return out;
}

// The layers by which windows of attention make the work of attention less: the sum over the blocks of the share of
// keys that no query sees.
double unseen_layers(const Model& model) {
  const auto length = static_cast<double>(model.sequence_length);
  double sum = 0;
  for (size_t b = model.reference_blocks; b < model.blocks.size(); ++b) {
    const Template& t = model.templates.at(model.blocks[b].tmpl);
    for (size_t n = 0; n < t.forward; ++n) {
      const Node& node = t.graph.nodes[n];
      const auto window = static_cast<double>(node.attrs.i("window"));
      if (node.op->id != std::string(ENG_OP_ATTENTION_WINDOW) || window <= 0 || window >= length) continue;
      sum += 1 - window * (2 * length - window + 1) / (length * (length + 1));
    }
  }
  return sum;
}

}  // namespace

const char* to_string(BoundBy bound) {
  static const char* names[] = {
      "compute", "memory",  "communication", "copies from and to the host", "what the host computes",
      "storage", "launches"};
  return names[static_cast<size_t>(bound)];
}

BoundBy StepTimes::bound() const {
  const std::pair<double, BoundBy> all[] = {
      {flops, BoundBy::compute},    {memory, BoundBy::memory}, {exposed, BoundBy::communication},
      {copies, BoundBy::host_link}, {host, BoundBy::host},     {storage, BoundBy::storage},
      {launches, BoundBy::launches}};
  return std::max_element(std::begin(all), std::end(all),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

double seconds_at_peak(const Model& model, const Target& target) {
  constexpr int32_t fp8 = -1;
  const auto peak = [&](int32_t dtype) {
    if (dtype == fp8) return target.peak_fp8;
    if (dtype == ENG_F16) return target.peak_f16 > 0 ? target.peak_f16 : target.info.peak_bf16;
    return dtype == ENG_BF16 ? target.info.peak_bf16 : target.info.peak_f32;
  };
  // Tables that are only looked up, and parameters that no op reads, multiply nothing.
  const auto looks_up = [](const Op& op) {
    return op.id == std::string(ENG_OP_EMBEDDING) || op.id == std::string(ENG_OP_EMBEDDING_PART) ||
           op.id == std::string(ENG_OP_POSITIONS);
  };
  // Parameters, and their formats where they are read. The reference model, which has no backward, may have the same.
  std::map<std::pair<uint32_t, bool>, int32_t> multiplied;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const Block& block = model.blocks[b];
    const Template& t = model.templates.at(block.tmpl);
    for (size_t n = 0; n < t.forward; ++n)
      for (Id i : t.graph.nodes[n].in)
        if (i && t.graph.value(i).kind == SymbolKind::param && !looks_up(*t.graph.nodes[n].op))
          multiplied[{block.params[t.graph.value(i).index], b < model.reference_blocks}] =
              in_fp8(*t.graph.nodes[n].op) && target.peak_fp8 > 0 ? fp8 : t.graph.value(i).desc.dtype;
  }
  std::map<int32_t, double> flops;  // by number format
  for (const auto& [read, dtype] : multiplied)
    flops[dtype] += (read.second ? 2.0 : 6.0) * count(model.params[read.first].whole());
  const auto most = [](const auto& a, const auto& b) {  // attention is none of the products in fp8
    return std::pair(a.first != fp8, a.second) < std::pair(b.first != fp8, b.second);
  };
  if (!flops.empty())
    std::max_element(flops.begin(), flops.end(), most)->second +=
        (model.reference_blocks ? 8.0 : 6.0) * (static_cast<double>(model.info.layers) - unseen_layers(model)) *
        model.info.attention_width * model.sequence_length;
  double seconds = 0;
  for (const auto& [dtype, number] : flops) {
    if (!(peak(dtype) > 0)) return 0;
    seconds += number / peak(dtype);
  }
  return seconds;
}

Machine machine_of(const Section& comm, const Target& target, const Storage& storage) {
  const auto number = [&](const char* key, double fallback) { return comm.has(key) ? comm.number(key) : fallback; };
  const eng_device_info& info = target.info;
  Machine m;
  const double part = target.reach > 0 ? target.reach : reached.flops;
  m.flops = number("describe.flops", part * info.peak_f32);
  if (!comm.has("describe.flops")) {
    m.bf16 = part * info.peak_bf16, m.f16 = part * target.peak_f16, m.fp8 = part * target.peak_fp8;
    m.attention = reached.attention / reached.flops;
  }
  if (target.device == "cuda" && !comm.has("describe.flops") && info.arch) {
    // 16 of a processor in each clock, which has 64 units for f32 up to sm_80, and 128 later: each makes 2 FLOPs.
    m.exponentials = info.peak_f32 / (info.arch <= 80 ? 8 : 16) * part / reached.flops;
    m.own_attention = (info.arch >= 90 && info.arch < 120 ? reached.own_since_90 : reached.own_attention) / part;
    m.arch = target.own_attention ? 0 : info.arch, m.attention_workspace = target.attention_workspace;
  }
  m.memory_bandwidth = number("describe.memory_bandwidth", reached.memory * info.memory_bandwidth);
  m.host_link = reached.links * std::min(info.to_device, info.to_host);
  m.host_memory = target.host_memory()        ? m.memory_bandwidth
                  : target.host_bandwidth > 0 ? target.host_bandwidth
                                              : reached.memory * assumed_host_memory;
  m.storage_read = storage.read > 0 ? storage.read : assumed_storage_read;
  m.storage_write = storage.write > 0 ? storage.write : assumed_storage_write;
  if (target.card && !target.card->plugin.empty()) m.launch = reached.launch;
  m.ranks_per_node = ranks_per_host(comm, target.card);
  m.bandwidth = number("describe.bandwidth", reached.links * target.network);
  m.latency = number("describe.latency", target.network_latency);
  m.node_bandwidth = number("describe.node_bandwidth", target.link > 0 ? reached.links * target.link : m.bandwidth);
  m.node_latency = number("describe.node_latency", target.link > 0 ? target.link_latency : m.latency);
  m.gathers_once = target.card && !target.card->plugin.empty();  // as NCCL's rings do
  return m;
}

Machine nominal_machine(Machine known) {
  const auto at_least = [](double& rate, double nominal) {
    if (rate <= 0) rate = nominal;
  };
  at_least(known.flops, 1e12);
  at_least(known.memory_bandwidth, 1e11);
  at_least(known.host_link, 1e10);
  at_least(known.host_memory, 1e11);
  at_least(known.bandwidth, known.node_bandwidth > 0 ? known.node_bandwidth : 1e10);
  at_least(known.node_bandwidth, known.bandwidth);
  at_least(known.launch, reached.launch);
  return known;
}

Topology::Topology(const Ranks& ranks, uint32_t per) {
  const uint32_t own = ranks.world.rank;
  for (const std::vector<uint32_t>& members : ranks.groups) {
    const auto near = static_cast<uint32_t>(
        std::count_if(members.begin(), members.end(), [&](uint32_t r) { return r != own && r / per == own / per; }));
    groups.push_back({near, static_cast<uint32_t>(members.size()) - near - 1});
  }
}

double collective_seconds(const Topology& topology, const Call& call, const Machine& machine) {
  const Topology::Members& members = topology.groups[static_cast<size_t>(call.attrs.i("group", 1)) - 1];
  const double near = members.near, far = members.far, others = near + far;
  if (others < 1) return 0;
  const double message = static_cast<double>(sent_bytes(call)) / others;
  const bool exchange = call.op->id == std::string(ENG_OP_ALL_TO_ALL);  // each rank's bytes are for it alone
  const double links = machine.gathers_once && !exchange ? near + 1 : 1;
  const auto link = [&](double messages, double bandwidth, double latency) {
    return std::ceil(std::log2(messages + 1)) * latency + (bandwidth > 0 ? messages * message / bandwidth : 0);
  };
  return std::max(link(far, machine.bandwidth * links, machine.latency),
                  link(near, machine.node_bandwidth, machine.node_latency));
}

Simulated simulate(const Plan& plan, const Segment& segment, const Machine& machine) {
  const Topology topology(plan.ranks, machine.ranks_per_node);
  return play(segment, costs_of(plan, topology, segment, machine), {});
}

double seconds_without(const std::vector<Phase>& phases, const Plan& plan, const Segment& segment,
                       const Machine& machine) {
  std::vector<Cost> costs = costs_of(plan, Topology(plan.ranks, machine.ranks_per_node), segment, machine);
  for (size_t a = 0; a < costs.size(); ++a)
    if (std::count(phases.begin(), phases.end(), plan.labels[segment.actions[a].label].phase)) costs[a].seconds = 0;
  return play(segment, costs, {}).seconds;
}

StepTimes step_times(const Plan& plan, const Machine& machine) {
  StepTimes out;
  const Topology topology(plan.ranks, machine.ranks_per_node);
  double calm = 0, without_copies = 0, without_host = 0, without_storage = 0;
  for (const Segment& segment : plan.program("train").segments) {
    const double times = segment.repeat;
    const std::vector<Cost> costs = costs_of(plan, topology, segment, machine);
    for (size_t a = 0; a < costs.size(); ++a) {
      const Cost& cost = costs[a];
      if (cost.by == BoundBy::communication) out.communication += times * cost.seconds;
      if (segment.actions[a].queue != Queue::compute) continue;
      if (cost.by == BoundBy::compute) out.flops += times * cost.seconds;
      if (cost.by == BoundBy::memory) out.memory += times * cost.seconds;
      if (cost.by == BoundBy::launches) out.launches += times * cost.seconds;
    }
    const double whole = play(segment, costs, {}).seconds;
    const auto without = [&](BoundBy what, const Counted& counted) {
      const bool any = std::any_of(costs.begin(), costs.end(), [&](const Cost& c) { return c.by == what; });
      return times * (any ? play(segment, costs, counted).seconds : whole);
    };
    out.step += times * whole;
    if (segment.name == "update") out.update += times * whole;
    calm += without(BoundBy::communication, {false, true});
    without_copies += without(BoundBy::host_link, {true, false});
    without_host += without(BoundBy::host, {true, true, false});
    without_storage += without(BoundBy::storage, {true, true, true, false});
  }
  out.exposed = out.step - calm, out.copies = out.step - without_copies;
  out.host = out.step - without_host, out.storage = out.step - without_storage;
  if (plan.ranks.pipeline > 1)
    out.bubble = simulate(plan, plan.program("train").segments.front(), machine).seconds *
                 (1 / (1 - equal_bubble(pipeline_of(plan.ranks, plan.accumulate))) - 1);
  out.step += out.bubble;
  return out;
}

double best_device_share(const PlanRequest& request, const Machine& machine) {
  Machine moving = machine;
  moving.launch = 0;  // ranks may have other numbers of actions, but need the same share
  std::array<std::array<double, queue_count>, 2> busy{};  // if the host updates everything, and if the device does
  for (const size_t all : {0, 1}) {
    PlanRequest one = request;
    one.offload.device_share = static_cast<double>(all), one.offload.update_late = false;
    one.offload.early_from = UINT32_MAX;
    const Plan plan = emit_plan(one);
    const Topology topology(plan.ranks, moving.ranks_per_node);
    for (const Action& action : plan.program("train").segments.back().actions)
      busy[all][static_cast<size_t>(action.queue)] += cost_of(plan, topology, action, moving).seconds;
  }
  double best = 0, least = HUGE_VAL;
  for (int k = 0; k <= 100; ++k) {
    double longest = 0;
    for (size_t q = 0; q < queue_count; ++q)
      longest = std::max(longest, busy[0][q] + k * (busy[1][q] - busy[0][q]) / 100);
    if (longest < least) least = longest, best = k / 100.0;
  }
  return best;
}

uint32_t best_early_block(const PlanRequest& request, const Machine& machine, bool sketch) {
  Machine moving = machine;
  moving.launch = 0;  // as above
  PlanRequest one = request;
  one.evaluate = false;
  std::map<uint32_t, double> steps;  // by the first block
  const auto step_at = [&](int k) {
    const uint32_t first = early_block(request.model, k / 8.0, request.offload.ratio);
    const auto [it, fresh] = steps.try_emplace(first, 0);
    one.offload.early_from = first;
    if (fresh) it->second = step_times(emit_plan(one), moving).step;
    return it->second;
  };
  // A step is first shortened by each part more, then lengthened. So it is enough to look beside the best so far; a
  // sketch does not.
  int best = 0;
  double least = step_at(0);
  for (int apart = 4; apart > 0; apart = sketch ? 0 : apart / 2)
    for (const int k : apart == 4 ? std::vector<int>{4, 8} : std::vector<int>{best - apart, best + apart})
      if (k > 0 && k <= 8 && step_at(k) < 0.999 * least) least = step_at(k), best = k;
  return early_block(request.model, best / 8.0, request.offload.ratio);
}

double program_seconds(const Plan& plan, const std::string& program, const Machine& machine) {
  double sum = 0;
  for (const Segment& segment : plan.program(program).segments)
    sum += segment.repeat * simulate(plan, segment, machine).seconds;
  return sum;
}

bool linked(const Plan& plan, const Machine& m) {
  const uint32_t ranks = plan.ranks.world.size, per = m.ranks_per_node;
  return (std::min(ranks, per) == 1 || m.node_bandwidth > 0) && (ranks <= per || m.bandwidth > 0);
}

bool timed(const Plan& plan, const Machine& m) {
  return m.flops > 0 && linked(plan, m);
}

}  // namespace eng
