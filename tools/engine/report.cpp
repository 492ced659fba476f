// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/config/config.hpp"

namespace eng {
namespace {

const char* to_string(Queue queue) {
  static const char* names[] = {"compute", "comm", "h2d", "d2h", "io", "host"};
  return names[static_cast<size_t>(queue)];
}

const char* to_string(Line line) {
  static const char* names[] = {"weights", "gradients",   "optimizer", "constants", "batch",
                                "step",    "activations", "workspace", "caches"};
  return names[static_cast<size_t>(line)];
}

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

uint64_t device_bytes(const Plan& plan) {
  uint64_t total = 0;
  for (const Arena& arena : plan.arenas) total += arena.total();
  return total;
}

uint64_t host_bytes(const Plan& plan, const ReportContext& c) {
  return c.overhead + c.staging + c.snapshot + (c.host_arenas ? device_bytes(plan) : 0);
}

// What the bytes behind the persistent ones hold when most of them are in use, actions taken in list order.
struct Peak {
  uint64_t bytes = 0;
  const Program* program = nullptr;
  uint32_t block = 0;    // index into Plan::labels
  std::vector<Id> live;  // largest first
};

Peak peak_of(const Plan& plan) {
  Peak peak;
  for (const Program& program : plan.programs) {
    std::vector<const Action*> actions;
    for (const Segment& segment : program.segments)
      for (const Action& action : segment.actions) actions.push_back(&action);
    std::map<Id, std::pair<size_t, size_t>> uses;  // first and last
    for (size_t a = 0; a < actions.size(); ++a)
      for (const auto& views : {actions[a]->in, actions[a]->out, {actions[a]->workspace}})
        for (const View& v : views)
          if (v.buffer && !plan.buffer(v.buffer).persistent) uses.try_emplace(v.buffer, a, a).first->second.second = a;
    std::vector<uint64_t> live(actions.size(), 0);
    for (const auto& [id, span] : uses)
      for (size_t a = span.first; a <= span.second; ++a) live[a] += plan.buffer(id).bytes;
    auto top = std::max_element(live.begin(), live.end());
    if (top == live.end() || *top <= peak.bytes) continue;
    const size_t at = static_cast<size_t>(top - live.begin());
    peak = {*top, &program, actions[at]->block, {}};
    for (const auto& [id, span] : uses)
      if (span.first <= at && at <= span.second) peak.live.push_back(id);
  }
  std::stable_sort(peak.live.begin(), peak.live.end(),
                   [&](Id a, Id b) { return plan.buffer(a).bytes > plan.buffer(b).bytes; });
  return peak;
}

bool fits(const Plan& plan, const ReportContext& c) {
  uint64_t need = c.host_arenas ? host_bytes(plan, c) : device_bytes(plan);
  return c.device_total == 0 || need <= c.device_total;
}

}  // namespace

std::string plan_text(const Plan& plan, const ReportContext& c) {
  std::string out = fmt::format("{}\n", c.title);
  out += fmt::format("  parameters        {}\n  FLOPs per step    {:.4g}\n", plan.parameters, plan.flops_per_step);
  std::map<Line, uint64_t> lines;
  for (const Buffer& b : plan.buffers)
    if (b.persistent) lines[b.line] += (std::max<uint64_t>(b.bytes, 1) + 4095) / 4096 * 4096;
  for (const Arena& arena : plan.arenas) {
    out += fmt::format("  arena {} ({})\n", arena.device, arena.kind);
    for (const auto& [line, n] : lines)
      out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", to_string(line), n, size(n));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", "persistent", arena.persistent, size(arena.persistent));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}  activations, gradients\n", "transient", arena.transient,
                       size(arena.transient));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}  scratch of kernels, beyond the transients\n", "workspace",
                       arena.workspace, size(arena.workspace));
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", "total", arena.total(), size(arena.total()));
  }
  if (const Peak peak = peak_of(plan); peak.program) {
    out += fmt::format("  live at most ({}, {})\n", peak.program->name, plan.labels[peak.block]);
    lines.clear();
    for (Id id : peak.live) lines[plan.buffer(id).line] += plan.buffer(id).bytes;
    for (const auto& [line, n] : lines)
      out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", to_string(line), n, size(n));
  }
  out += fmt::format("  staged batches      {:>16} bytes  {:>12}\n", c.staging, size(c.staging));
  if (c.snapshot)
    out += fmt::format("  snapshot            {:>16} bytes  {:>12}  for [checkpoint] asynchronous\n", c.snapshot,
                       size(c.snapshot));
  out += fmt::format("  fixed overhead      {:>16} bytes  {:>12}  code, libraries, stacks: measured once per build\n",
                     c.overhead, size(c.overhead));
  out += fmt::format("  process peak        {:>16} bytes  {:>12}", host_bytes(plan, c), size(host_bytes(plan, c)));
  if (c.device_total) out += fmt::format("  of {}: {}", size(c.device_total), fits(plan, c) ? "fits" : "DOES NOT FIT");
  return out + "\n";
}

std::string plan_json(const Plan& plan, const ReportContext& c) {
  nlohmann::ordered_json arenas = nlohmann::ordered_json::array();
  for (const Arena& a : plan.arenas)
    arenas.push_back({{"device", a.device},
                      {"kind", a.kind},
                      {"persistent", a.persistent},
                      {"transient", a.transient},
                      {"workspace", a.workspace},
                      {"total", a.total()}});
  nlohmann::ordered_json rank = {{"rank", 0},
                                 {"arenas", arenas},
                                 {"device_peak_bytes", device_bytes(plan)},
                                 {"host_peak_bytes", host_bytes(plan, c)},
                                 {"nvme_bytes", 0},
                                 {"communication", nlohmann::ordered_json::array()}};
  nlohmann::ordered_json out = {{"parameters", plan.parameters},
                                {"flops_per_step", plan.flops_per_step},
                                {"ranks", nlohmann::ordered_json::array({rank})},
                                {"fits", fits(plan, c)}};
  out["step_seconds_estimate"] =
      c.peak_flops > 0 ? nlohmann::ordered_json(plan.flops_per_step / c.peak_flops) : nlohmann::ordered_json(nullptr);
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
  if (const Peak peak = peak_of(plan); peak.program) {
    out += fmt::format("live at most: {} bytes in {}, {}\n", peak.bytes, peak.program->name, plan.labels[peak.block]);
    for (Id id : peak.live) out += fmt::format("{:>16} {}\n", plan.buffer(id).bytes, plan.buffer(id).name);
  }
  for (const Program& program : plan.programs)
    for (const Segment& segment : program.segments) {
      out += fmt::format("{}/{} x{}: {} actions\n", program.name, segment.name, segment.repeat, segment.actions.size());
      for (size_t a = 0; a < segment.actions.size(); ++a) {
        const Action& action = segment.actions[a];
        out += fmt::format("{:>6} {:<7} {} ({}){}", a, to_string(action.queue), plan.calls[action.call].op->id,
                           plan.labels[action.block], attrs(action));
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
