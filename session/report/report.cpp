// SPDX-License-Identifier: Apache-2.0
#include "session/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "session/config/config.hpp"
#include "session/json.hpp"

namespace eng {

const char* to_string(Queue queue) {
  static const char* names[] = {"compute", "comm", "h2d", "d2h", "io", "host"};
  return names[static_cast<size_t>(queue)];
}

namespace {

const char* to_string(Line line) {
  static const char* names[] = {"weights",     "gradients", "optimizer", "constants", "batch",         "step",
                                "activations", "workspace", "caches",    "leases",    "communication", "update"};
  return names[static_cast<size_t>(line)];
}

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

std::vector<const Action*> actions_of(const Program& program) {
  std::vector<const Action*> actions;
  for (const Segment& segment : program.segments)
    for (const Action& action : segment.actions) actions.push_back(&action);
  return actions;
}

// First and last use of a transient buffer.
struct Use {
  Id buffer = 0;  // 0: it has none
  size_t first = 0, last = 0;
};

// In the order of the buffers, with those that are not used.
std::vector<Use> uses_of(const Plan& plan, const std::vector<const Action*>& actions) {
  std::vector<Use> uses(plan.buffers.size());
  for (size_t a = 0; a < actions.size(); ++a) {
    const auto use = [&](const View& v) {
      if (!v.buffer || plan.buffer(v.buffer).persistent) return;
      Use& use = uses[v.buffer - 1];
      use = {v.buffer, use.buffer ? use.first : a, a};
    };
    for (const View& v : actions[a]->in) use(v);
    for (const View& v : actions[a]->out) use(v);
    use(actions[a]->workspace);
  }
  return uses;
}

// Bytes in use at each action, of the buffers for which `wanted` is true.
template <class Wanted>
std::vector<uint64_t> live_bytes(const Plan& plan, const std::vector<Use>& uses, size_t actions, Wanted wanted) {
  std::vector<uint64_t> come(actions + 1, 0), gone(actions + 1, 0), live;
  for (const auto& [id, first, last] : uses) {
    if (!id || !wanted(plan.buffer(id))) continue;
    come[first] += plan.buffer(id).bytes, gone[last + 1] += plan.buffer(id).bytes;
  }
  uint64_t now = 0;
  for (size_t a = 0; a < actions; ++a) live.push_back(now = now + come[a] - gone[a]);
  return live;
}

// The transient buffers at the action where most of their bytes are in use, actions taken in list order.
struct Fullest {
  uint64_t bytes = 0;
  const Program* program = nullptr;
  uint32_t block = 0;    // index into Plan::labels
  std::vector<Id> live;  // largest first
};

Fullest fullest(const Plan& plan) {
  Fullest peak;
  for (const Program& program : plan.programs) {
    const auto actions = actions_of(program);
    const auto uses = uses_of(plan, actions);
    const auto live = live_bytes(plan, uses, actions.size(), [](const Buffer&) { return true; });
    auto top = std::max_element(live.begin(), live.end());
    if (top == live.end() || *top <= peak.bytes) continue;
    const size_t at = static_cast<size_t>(top - live.begin());
    peak = {*top, &program, actions[at]->block, {}};
    for (const auto& [id, first, last] : uses)
      if (id && first <= at && at <= last) peak.live.push_back(id);
  }
  std::stable_sort(peak.live.begin(), peak.live.end(),
                   [&](Id a, Id b) { return plan.buffer(a).bytes > plan.buffer(b).bytes; });
  return peak;
}

bool fits(const Plan& plan, const ReportContext& c) {
  return c.device_total == 0 || peak_of(plan, c).machine <= c.device_total;
}

bool several(const Plan& plan) {
  return plan.ranks.world.size > 1;
}

// Whether all rates are known that the time of a step needs.
bool timed(const Plan& plan, const ReportContext& c) {
  return c.machine.flops > 0 && (!several(plan) || c.machine.bandwidth > 0);
}

std::string rate(double bytes_per_second) {
  return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

std::string seconds(double s) {
  return s >= 1      ? fmt::format("{:.3g} s", s)
         : s >= 1e-3 ? fmt::format("{:.3g} ms", 1e3 * s)
                     : fmt::format("{:.3g} us", 1e6 * s);
}

std::string machine_text(const Machine& m) {
  std::string text = fmt::format("{} and {}", rate(m.bandwidth), seconds(m.latency));
  if (m.ranks_per_node > 1)
    text += fmt::format(" between nodes of {} ranks, {} and {} within", m.ranks_per_node, rate(m.node_bandwidth),
                        seconds(m.node_latency));
  if (m.flops > 0) text += fmt::format("; {:.3g} FLOP/s", m.flops);
  if (m.memory_bandwidth > 0) text += fmt::format(", memory {}", rate(m.memory_bandwidth));
  return text;
}

std::string communication_text(const Plan& plan, const ReportContext& c) {
  const auto all = static_cast<double>(unit_elements(plan));
  std::string out =
      fmt::format("  sent by each rank per step, as many received{:>12}{:>21}{:>16}\n", "count", "bytes", "x P");
  uint64_t bytes = 0, count = 0;
  double units = 0;
  for (const Transfer& t : traffic(plan)) {
    const std::string op = t.op.substr(t.op.find('.') + 1, t.op.find('/') - t.op.find('.') - 1);
    const double share = static_cast<double>(t.elements) / all;
    out += fmt::format("    {:<14} {:<32} {:>6} {:>20} {:>15.3f}\n", op, t.purpose, t.count, t.bytes, share);
    bytes += t.bytes, count += t.count, units += share;
  }
  out += fmt::format("    {:<14} {:<32} {:>6} {:>20} {:>15.3f}  {}\n", "all", "", count, bytes, units, size(bytes));
  if (c.machine.bandwidth <= 0)
    return out + "  interconnect      unknown: comm.describe.bandwidth=25GB comm.describe.latency=5us\n";
  const StepTimes times = step_times(plan, c.machine);
  out += fmt::format("  interconnect      {}\n  communication     {} per step", machine_text(c.machine),
                     seconds(times.communication));
  return out + (timed(plan, c) ? fmt::format(", {} of it exposed\n", seconds(times.exposed))
                               : "; the exposed part depends on comm.describe.flops\n");
}

}  // namespace

uint64_t most_live(const Plan& plan, Line line, std::optional<uint32_t> arena) {
  const auto actions = actions_of(plan.program("train"));
  const auto live = live_bytes(plan, uses_of(plan, actions), actions.size(),
                               [&](const Buffer& b) { return b.line == line && (!arena || b.arena == *arena); });
  return *std::max_element(live.begin(), live.end());
}

std::string plan_text(const Plan& plan, const ReportContext& c) {
  std::string out = fmt::format("{}\n", c.title);
  out += fmt::format("  parameters        {}", plan.parameters);
  if (several(plan))
    out += fmt::format(", P = {} with padding for {} ranks", unit_elements(plan), plan.ranks.world.size);
  if (const auto& frozen = plan.frozen; frozen.parameters)
    out += fmt::format("\n  frozen            {} of them: saves {} of gradients and {} of optimizer state{}",
                       frozen.parameters, size(frozen.gradients), size(frozen.states),
                       several(plan) ? ", of all ranks" : "");
  out += fmt::format("\n  FLOPs per step    {:.4g}{}\n", plan.flops_per_step, several(plan) ? " of each rank" : "");
  out += fmt::format("  kept activations  {} of a micro-batch", size(c.kept.bytes));
  if (c.kept.again > 0) out += fmt::format("; {:.4g} of the FLOPs recompute others", c.kept.again * plan.accumulate);
  out += "\n";
  if (several(plan)) out += fmt::format("  memory of each of {} ranks\n", plan.ranks.world.size);
  std::map<Line, uint64_t> lines;
  for (uint32_t a = 0; a < plan.arenas.size(); ++a) {
    const Arena& arena = plan.arenas[a];
    lines.clear();
    for (const Buffer& b : plan.buffers)
      if (b.persistent && b.arena == a) lines[b.line] += (std::max<uint64_t>(b.bytes, 1) + 4095) / 4096 * 4096;
    out += fmt::format("  arena {} ({})\n", arena.device, arena.kind);
    for (const auto& [line, n] : lines)
      out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", to_string(line), n, size(n));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", "persistent", arena.persistent, size(arena.persistent));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}  activations, gradients\n", "transient", arena.transient,
                       size(arena.transient));
    if (several(plan))
      for (Line line : {Line::leases, Line::communication})
        if (const uint64_t most = most_live(plan, line, a); most || a == 0)
          out +=
              fmt::format("      {:<13} {:>15} bytes  {:>12}  of these at most\n", to_string(line), most, size(most));
    if (const uint64_t most = most_live(plan, Line::update, a))
      out += fmt::format("      {:<13} {:>15} bytes  {:>12}  of these at most, in the optimizer\n",
                         to_string(Line::update), most, size(most));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}  scratch of kernels, beyond the transients\n", "workspace",
                       arena.workspace, size(arena.workspace));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", "total", arena.total(), size(arena.total()));
  }
  if (const Fullest peak = fullest(plan); peak.program) {
    out += fmt::format("  live at most ({}, {})\n", peak.program->name, plan.labels[peak.block].text());
    lines.clear();
    for (Id id : peak.live) lines[plan.buffer(id).line] += plan.buffer(id).bytes;
    for (const auto& [line, n] : lines)
      out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", to_string(line), n, size(n));
  }
  out += fmt::format("  staged batches      {:>16} bytes  {:>12}\n", c.staging, size(c.staging));
  if (c.snapshot)
    out += fmt::format("  snapshot            {:>16} bytes  {:>12}  for [checkpoint] asynchronous\n", c.snapshot,
                       size(c.snapshot));
  out += fmt::format("  plan itself         {:>16} bytes  {:>12}  its lists, kernels' records, tables of checkpoints\n",
                     c.bookkeeping, size(c.bookkeeping));
  out += fmt::format("  fixed overhead      {:>16} bytes  {:>12}  code, libraries, stacks: measured once per build\n",
                     c.overhead, size(c.overhead));
  const Peak peak = peak_of(plan, c);
  out += fmt::format("  process peak        {:>16} bytes  {:>12}", peak.host, size(peak.host));
  if (c.local_ranks > 1 && c.host_arenas)
    out += fmt::format("\n  {:<17} {:>18} bytes  {:>12}", fmt::format("{} on a node", c.local_ranks), peak.machine,
                       size(peak.machine));
  if (c.device_total) out += fmt::format("  of {}: {}", size(c.device_total), fits(plan, c) ? "fits" : "DOES NOT FIT");
  out += "\n";
  out += fmt::format("  checkpoint          {:>16} bytes  {:>12}  on disk; ", c.checkpoint, size(c.checkpoint));
  const auto most = static_cast<uint64_t>(c.checkpoints) + 1;
  out += c.checkpoints
             ? fmt::format("{} are kept: {} while one more is saved\n", c.checkpoints, size(most * c.checkpoint))
             : "all are kept\n";
  if (several(plan)) out += communication_text(plan, c);
  if (timed(plan, c))
    out += fmt::format("  step              {} at least\n", seconds(step_times(plan, c.machine).step));
  return out;
}

std::string plan_json(const Plan& plan, const ReportContext& c) {
  Json arenas = Json::array();
  for (const Arena& a : plan.arenas)
    arenas.push_back(Json::ordered({{"device", a.device},
                                    {"kind", a.kind},
                                    {"persistent", a.persistent},
                                    {"transient", a.transient},
                                    {"workspace", a.workspace},
                                    {"total", a.total()}}));
  const Peak peak = peak_of(plan, c);
  Json rank = Json::ordered({{"rank", 0},
                             {"arenas", arenas},
                             {"device_peak_bytes", peak.device},
                             {"host_peak_bytes", peak.host},
                             {"bookkeeping_bytes", c.bookkeeping},
                             {"nvme_bytes", 0},
                             {"leases_bytes", most_live(plan, Line::leases)},
                             {"communication_bytes", most_live(plan, Line::communication)},
                             {"communication", Json::array()}});
  const auto all = static_cast<double>(unit_elements(plan));
  for (const Transfer& t : traffic(plan))
    rank["communication"].push_back(Json::ordered({{"collective", t.op},
                                                   {"purpose", t.purpose},
                                                   {"count", t.count},
                                                   {"sent_bytes", t.bytes},
                                                   {"units", static_cast<double>(t.elements) / all}}));
  Json out = Json::ordered({{"parameters", plan.parameters},
                            {"frozen", Json::ordered({{"parameters", plan.frozen.parameters},
                                                      {"saved_gradient_bytes", plan.frozen.gradients},
                                                      {"saved_state_bytes", plan.frozen.states}})},
                            {"flops_per_step", plan.flops_per_step},
                            {"recomputed_flops", c.kept.again * plan.accumulate},
                            {"kept_activation_bytes", c.kept.bytes},
                            {"checkpoint_bytes", c.checkpoint},
                            {"world_size", plan.ranks.world.size},
                            {"ranks", Json::array({std::move(rank)})},
                            {"fits", fits(plan, c)}});
  const StepTimes times = step_times(plan, c.machine);
  const auto known = [](bool yes, double value) { return yes ? Json(value) : Json(); };
  out["step_seconds_estimate"] = known(timed(plan, c), times.step);
  out["communication_seconds"] = known(c.machine.bandwidth > 0, times.communication);
  out["exposed_seconds"] = known(timed(plan, c) && several(plan), times.exposed);
  return out.dump(2) + "\n";
}

std::string plan_dump(const Plan& plan) {
  std::string out;
  auto view = [&](const View& v) -> std::string {
    if (!v.buffer) return "-";
    const Buffer& b = plan.buffer(v.buffer);
    return fmt::format("[{}+{:#x} {} \"{}\"]", b.arena, b.offset + v.offset, describe(v.desc), b.name);
  };
  auto attrs = [&](const Action& action) {
    std::string text;
    for (const Attr& a : plan.calls[action.call].attrs.list)
      text += a.f != 0 ? fmt::format(" {}={}", a.key, a.f) : fmt::format(" {}={}", a.key, a.i);
    return text;
  };
  if (const Fullest peak = fullest(plan); peak.program) {
    out += fmt::format("live at most: {} bytes in {}, {}\n", peak.bytes, peak.program->name,
                       plan.labels[peak.block].text());
    for (Id id : peak.live) out += fmt::format("{:>16} {}\n", plan.buffer(id).bytes, plan.buffer(id).name);
  }
  for (const Program& program : plan.programs)
    for (const Segment& segment : program.segments) {
      out += fmt::format("{}/{} x{}: {} actions\n", program.name, segment.name, segment.repeat, segment.actions.size());
      for (size_t a = 0; a < segment.actions.size(); ++a) {
        const Action& action = segment.actions[a];
        out += fmt::format("{:>6} {:<7} {} ({}){}", a, to_string(action.queue), plan.calls[action.call].op->id,
                           plan.labels[action.block].text(), attrs(action));
        for (uint32_t w : action.waits) out += fmt::format(" wait {}", w);
        out += "\n        in ";
        for (const View& v : action.in) out += " " + view(v);
        out += "\n        out";
        for (const View& v : action.out) out += " " + view(v);
        if (action.workspace.buffer) out += "\n        scratch " + view(action.workspace);
        out += "\n";
      }
    }
  return out;
}

}  // namespace eng
