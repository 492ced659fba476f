// SPDX-License-Identifier: Apache-2.0
#include "session/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/packed.h"
#include "session/config/config.hpp"
#include "session/json.hpp"
#include "session/model/fp8.hpp"

namespace eng {

namespace {

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

bool has_storage(const Plan& plan) {
  for (uint32_t a = 0; a < plan.arenas.size(); ++a)
    if (plan.stores(a)) return true;
  return false;
}

bool has_fp8(const Plan& plan) {
  return std::any_of(plan.calls.begin(), plan.calls.end(), [](const Call& call) { return in_fp8(*call.op); });
}

bool several(const Plan& plan) {
  return plan.ranks.world.size > 1;
}

std::string rate(double bytes_per_second) {
  return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9);
}

std::string seconds(double s) {
  return s >= 1      ? fmt::format("{:.3g} s", s)
         : s >= 1e-3 ? fmt::format("{:.3g} ms", 1e3 * s)
                     : fmt::format("{:.3g} us", 1e6 * s);
}

// "; 3e+13 FLOP/s, memory 3e+03 GB/s".
std::string rates_text(const Plan& plan, const Machine& m) {
  std::string text;
  if (m.flops > 0) text += fmt::format("; {:.3g} FLOP/s", m.flops);
  if (m.bf16 > 0) text += fmt::format(", {:.3g} in bf16", m.bf16);
  if (m.f16 > 0) text += fmt::format(", {:.3g} in f16", m.f16);
  if (has_fp8(plan)) text += m.fp8 > 0 ? fmt::format(", {:.3g} in fp8", m.fp8) : ", products in fp8 as those in bf16";
  if (m.memory_bandwidth > 0) text += fmt::format(", memory {}", rate(m.memory_bandwidth));
  if (plan.has_tiers() && m.host_link > 0)
    text += fmt::format(", host's memory {}, its link {}", rate(m.host_memory), rate(m.host_link));
  if (has_storage(plan))
    text += fmt::format(", storage {} to read and {} to write", rate(m.storage_read), rate(m.storage_write));
  return text;
}

std::string machine_text(const Plan& plan, const Machine& m) {
  std::vector<std::string> parts;
  const bool far = plan.ranks.world.size > m.ranks_per_node, near = m.ranks_per_node > 1;
  if (far) parts.push_back(fmt::format("{} and {}", rate(m.bandwidth), seconds(m.latency)));
  if (far && near) parts.back() += fmt::format(" between nodes of {} ranks", m.ranks_per_node);
  if (near)
    parts.push_back(
        fmt::format("{} and {} within{}", rate(m.node_bandwidth), seconds(m.node_latency), far ? "" : " a node"));
  return fmt::format("{}{}", fmt::join(parts, ", "), rates_text(plan, m));
}

std::string communication_text(const Plan& plan, const ReportContext& c) {
  const auto all = static_cast<double>(c.weights);
  std::string out =
      fmt::format("  sent by each rank per step, as many received{:>12}{:>21}{:>16}\n", "count", "bytes", "x P");
  uint64_t bytes = 0, count = 0;
  double units = 0;
  for (const Transfer& t : traffic(plan)) {
    const std::string op = t.op.substr(t.op.find('.') + 1, t.op.find('/') - t.op.find('.') - 1);
    const double share = static_cast<double>(t.exchanged) / all;
    out += fmt::format("    {:<14} {:<32} {:>6} {:>20} {:>15.3f}\n", op, t.purpose, t.count, t.bytes, share);
    bytes += t.bytes, count += t.count, units += share;
  }
  out += fmt::format("    {:<14} {:<32} {:>6} {:>20} {:>15.3f}  {}\n", "all", "", count, bytes, units, size(bytes));
  if (!linked(plan, c.machine))
    return out + "  interconnect      unknown: comm.describe.bandwidth=25GB comm.describe.latency=5us\n";
  const StepTimes times = step_times(plan, c.machine);
  out += fmt::format("  interconnect      {}\n  communication     {} per step", machine_text(plan, c.machine),
                     seconds(times.communication));
  return out + (timed(plan, c.machine) ? fmt::format(", {} of it exposed\n", seconds(times.exposed))
                                       : "; the exposed part depends on comm.describe.flops\n");
}

// The bytes that must fit, and where.
std::string peak_text(const Plan& plan, const ReportContext& c) {
  const Peak peak = peak_of(plan, c);
  const auto line = [](const std::string& what, uint64_t n) {
    return fmt::format("  {:<17} {:>18} bytes  {:>12}", what, n, size(n));
  };
  const auto of = [](uint64_t need, uint64_t total) {
    return total ? fmt::format("  of {}: {}", size(total), need <= total ? "fits" : "DOES NOT FIT") : std::string();
  };
  const bool shared = c.local_ranks > 1;
  const std::string together = fmt::format("{} on a node", c.local_ranks);
  std::string out;
  if (peak.storage)
    out = line(shared ? "storage of a node" : "storage", peak.storage) + of(peak.storage, c.storage_total) + "\n";
  if (c.arena_total) out += line("device.memory", peak.arena) + of(peak.arena, c.arena_total) + "\n";
  if (c.host_arenas) {
    out += line("process peak", peak.host);
    if (shared) out += "\n" + line(together, peak.machine);
    return out + of(peak.machine, c.device_total) + "\n";
  }
  if (c.device_overhead)
    out += line("reserve", c.device_overhead) + (c.assumed ? "  assumed, not measured" : "  of the device") +
           ": its driver's context, libraries, the communicator\n";
  out += line("device peak", peak.device) + of(peak.device, c.device_total) + "\n";
  out += line("process peak", peak.host);
  if (shared) out += "\n" + line(together, peak.hosts);
  return out + (c.host_total ? of(peak.hosts, c.host_total) : "  of host memory") + "\n";
}

// By the times of all stages of a pipeline, if they were planned.
StepTimes times_of(const Plan& plan, const ReportContext& c) {
  StepTimes out = step_times(plan, c.machine);
  if (c.stages.empty()) return out;
  const double alone = out.step - out.bubble;
  out.step = std::max(alone, step_seconds(c.stages, pipeline_of(plan.ranks, plan.accumulate))),
  out.bubble = out.step - alone;
  return out;
}

std::string step_text(const Plan& plan, const ReportContext& c) {
  const StepTimes t = times_of(plan, c);
  std::string parts;
  for (const auto& [what, time] : {std::pair("by FLOPs", t.flops),
                                   {"by memory", t.memory},
                                   {"by launches", t.launches},
                                   {"for communication", t.exposed},
                                   {"for copies", t.copies},
                                   {"for storage", t.storage},
                                   {"on the host", t.host},
                                   {"for other stages", t.bubble}})
    if (time > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", seconds(time), what);
  if (c.step_at_peak > 0) parts += fmt::format("; mfu {:.1f} %", 100 * c.step_at_peak / t.step);
  std::string out =
      fmt::format("  step              {} estimated, bound by {}: {}\n", seconds(t.step), to_string(t.bound()), parts);
  if (!several(plan)) out += fmt::format("  rates             {}\n", rates_text(plan, c.machine).substr(2));
  return out;
}

std::string checkpoint_text(const ReportContext& c) {
  if (!c.checkpoint) return "  checkpoint          none: the run saves nothing\n";
  const auto most = static_cast<uint64_t>(c.checkpoints) + 1;
  return fmt::format(
      "  checkpoint          {:>16} bytes  {:>12}  on disk; {}\n", c.checkpoint, size(c.checkpoint),
      c.checkpoints ? fmt::format("{} are kept: {} while one more is saved", c.checkpoints, size(most * c.checkpoint))
                    : "all are kept");
}

std::string host_update_text(const Plan& plan, const HostUpdate& u, const Machine& machine) {
  const std::string threads =
      u.of ? fmt::format("{} of {} threads of a rank", u.threads, u.of) : "the number of its threads is unknown";
  std::string out = fmt::format("  update on host    {}, {} the device computes\n", threads,
                                u.overlapped ? "while" : "in turn with what");
  if (u.device_share > 0)
    out += fmt::format("  update on device  {:.0f} % of what is on tiers, beside that\n", 100 * u.device_share);
  if (u.late) out += "  update late       beside the next step's first forward; gradients stay until then\n";
  if (u.early > 0)
    out += fmt::format("  update early      {:.0f} % of the parameters, beside the last backward; undone with {}{}\n",
                       100 * u.early, format_bytes(static_cast<double>(u.undo)),
                       timed(plan, machine) ? fmt::format(", and made again in {} if the step is clipped or skipped",
                                                          seconds(program_seconds(plan, update_again, machine)))
                                            : ", and made again, if the step is clipped or skipped");
  return out;
}

// Frozen parameters that are kept in a packed type; "" if there are none.
std::string packed_text(const Plan& plan) {
  uint64_t parameters = 0, held = 0;
  int32_t type = 0;
  for (const Tensor& t : plan.tensors) {
    if (!t.packed) continue;
    type = t.packed, parameters += static_cast<uint64_t>(count(t.desc));
    for (const HeldRange& range : t.ranges) held += bytes(range.view.desc);
  }
  if (!type) return "";
  const char* const name = type == ENG_PACKED_NF4          ? "nf4"
                           : type == ENG_PACKED_NF4_DOUBLE ? "nf4_double"
                           : type == ENG_PACKED_INT8       ? "int8"
                                                           : "e4m3";
  return fmt::format("\n  packed            {} of them in {}: {} with their scales{}", parameters, name, size(held),
                     several(plan) ? " on each rank" : "");
}

}  // namespace

std::string plan_text(const Plan& plan, const ReportContext& c) {
  std::string out = fmt::format("{}\n", c.title);
  if (!c.card.empty()) out += fmt::format("  described device  {}, planned by its description\n", c.card);
  out += fmt::format("  parameters        {}", plan.parameters);
  if (several(plan))
    out += fmt::format(", P = {} with padding for {} ranks", unit_elements(plan), plan.ranks.world.size);
  if (const auto& frozen = plan.frozen; frozen.parameters)
    out += fmt::format("\n  frozen            {} of them: saves {} of gradients and {} of optimizer state{}",
                       frozen.parameters, size(frozen.gradients), size(frozen.states),
                       several(plan) ? ", of all ranks" : "");
  out += packed_text(plan);
  if (!c.reference.empty()) out += fmt::format("\n  reference         {}", c.reference);
  for (const std::string& text : c.transforms) out += fmt::format("\n  transform         {}", text);
  if (!c.parallel.empty()) out += fmt::format("\n  parallel          {}", c.parallel);
  if (!c.context.empty()) out += fmt::format("\n  context           {}", c.context);
  if (!c.pipeline.empty()) out += fmt::format("\n  pipeline          {}", c.pipeline);
  for (const PaddedHead& head : c.heads)
    out += fmt::format("\n  head              {} has {} rows in memory for {} ids: {} zeros, {} with its weight",
                       head.parameter, head.in_memory, head.rows, head.zeros, size(head.bytes));
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
    if (const uint64_t most = most_live(plan, Line::observers, a))
      out += fmt::format("      {:<13} {:>15} bytes  {:>12}  of these at most, in observers\n",
                         to_string(Line::observers), most, size(most));
    const char* scratch = c.capped && arena.workspace ? "the most scratch of a kernel: an upper bound"
                                                      : "scratch of kernels, beyond the transients";
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}  {}\n", "workspace", arena.workspace, size(arena.workspace),
                       scratch);
    out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", "total", arena.total(), size(arena.total()));
  }
  if (const Fullest peak = fullest(plan); peak.program) {
    out += fmt::format("  live at most ({}, {})\n", peak.program->name, plan.labels[peak.label].text());
    lines.clear();
    for (Id id : peak.live) lines[plan.buffer(id).line] += plan.buffer(id).bytes;
    for (const auto& [line, n] : lines)
      out += fmt::format("    {:<14} {:>16} bytes  {:>12}\n", to_string(line), n, size(n));
  }
  out += fmt::format("  staged batches      {:>16} bytes  {:>12}\n", c.staging, size(c.staging));
  if (c.data)
    out += fmt::format("  text in memory      {:>16} bytes  {:>12}  of small, compressed or JSON Lines files\n", c.data,
                       size(c.data));
  if (c.tiers)
    out += fmt::format("  storage's tables    {:>16} bytes  {:>12}  checksums, buffers\n", c.tiers, size(c.tiers));
  if (c.job)
    out += fmt::format("  the job itself      {:>16} bytes  {:>12}  of host memory, as it says\n", c.job, size(c.job));
  if (c.snapshot)
    out += fmt::format("  snapshot            {:>16} bytes  {:>12}  for [checkpoint] asynchronous\n", c.snapshot,
                       size(c.snapshot));
  if (c.copies)
    out +=
        fmt::format("  copies in memory    {:>16} bytes  {:>12}  for [checkpoint] memory_every: two steps{}\n",
                    c.copies, size(c.copies),
                    plan.ranks.world.local_size < plan.ranks.world.size ? ", and two of a rank of another host" : "");
  if (c.second)
    out += fmt::format("  second place        {:>16} bytes  {:>12}  for [checkpoint] second, on rank 0\n", c.second,
                       size(c.second));
  if (const uint64_t n = c.sampling.host + c.sampling.device + c.sampling.storage)
    out += fmt::format("  texts for observers {:>16} bytes  {:>12}  their weights, caches and plan\n", n, size(n));
  out += fmt::format("  plan itself         {:>16} bytes  {:>12}  its lists, kernels' records, tables of checkpoints\n",
                     c.bookkeeping, size(c.bookkeeping));
  if (c.capped)
    out += "  fixed overhead      unknown: the plugin of the device states it; it is of host memory\n";
  else
    out += fmt::format("  fixed overhead      {:>16} bytes  {:>12}  code, libraries, stacks: measured once per build\n",
                       c.overhead, size(c.overhead));
  out += peak_text(plan, c);
  if (!c.workspace.empty()) out += fmt::format("  attention scratch {}\n", c.workspace);
  out += checkpoint_text(c);
  if (c.host_update) out += host_update_text(plan, *c.host_update, c.machine);
  if (several(plan)) out += communication_text(plan, c);
  if (timed(plan, c.machine) && plan.flops_per_step > 0) out += step_text(plan, c);
  return out;
}

// null where it is not known how much memory the device has.
static Json fits_json(const Peak& peak, const ReportContext& c) {
  const bool fits = excess(peak, {c.device_total, c.host_total, c.arena_total, c.storage_total}).bytes == 0;
  return fits && !c.device_total ? Json() : Json(fits);
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
                             {"nvme_bytes", peak.storage / c.local_ranks},
                             {"leases_bytes", most_live(plan, Line::leases)},
                             {"communication_bytes", most_live(plan, Line::communication)},
                             {"communication", Json::array()}});
  if (const uint64_t n = c.sampling.host + c.sampling.device + c.sampling.storage) rank["sampling_bytes"] = n;
  const auto all = static_cast<double>(c.weights);
  for (const Transfer& t : traffic(plan))
    rank["communication"].push_back(Json::ordered({{"collective", t.op},
                                                   {"purpose", t.purpose},
                                                   {"count", t.count},
                                                   {"sent_bytes", t.bytes},
                                                   {"units", static_cast<double>(t.exchanged) / all}}));
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
                            {"fits", fits_json(peak, c)}});
  if (c.attention_workspace) out["attention_workspace"] = *c.attention_workspace;
  if (!c.reference.empty()) out["reference"] = c.reference;
  if (!c.transforms.empty()) out["transforms"] = c.transforms;
  if (!c.parallel.empty()) out["parallel"] = Json::ordered({{"tensor", plan.ranks.tensor}, {"text", c.parallel}});
  if (!c.pipeline.empty())
    out["pipeline"] =
        Json::ordered({{"stages", plan.ranks.pipeline}, {"stage", plan.ranks.stage()}, {"text", c.pipeline}});
  if (!c.context.empty()) out["context"] = Json::ordered({{"ranks", plan.ranks.context}, {"text", c.context}});
  for (const PaddedHead& head : c.heads)
    out["padded_heads"].push_back(Json::ordered({{"parameter", head.parameter},
                                                 {"rows", head.rows},
                                                 {"rows_in_memory", head.in_memory},
                                                 {"zeros", head.zeros},
                                                 {"weight_bytes", head.bytes}}));
  if (!c.card.empty())
    out["described"] = Json::ordered({{"card", c.card},
                                      {"device_bytes", c.device_total},
                                      {"reserve_bytes", c.device_overhead},
                                      {"host_bytes", c.host_total ? Json(c.host_total) : Json()},
                                      {"reserve_is_assumed", c.assumed},
                                      {"workspace_is_upper_bound", c.capped}});
  const StepTimes times = times_of(plan, c);
  const auto known = [](bool yes, double value) { return yes ? Json(value) : Json(); };
  out["step_seconds_estimate"] = known(timed(plan, c.machine), times.step);
  out["mfu_estimate"] = known(timed(plan, c.machine) && c.step_at_peak > 0, c.step_at_peak / times.step);
  out["step_bound"] = timed(plan, c.machine) ? Json(to_string(times.bound())) : Json();
  out["update_on_host"] = Json();
  if (const auto& u = c.host_update)
    out["update_on_host"] = Json::ordered({{"threads", u->of ? Json(u->threads) : Json()},
                                           {"host_threads", u->of ? Json(u->of) : Json()},
                                           {"beside_compute", u->overlapped},
                                           {"late", u->late},
                                           {"early", u->early},
                                           {"undo_bytes", u->undo},
                                           {"device_share", u->device_share}});
  if (plan.ranks.pipeline > 1) out["bubble_seconds"] = known(timed(plan, c.machine), times.bubble);
  for (const StagePlan& s : c.stages) {
    Json parts = Json::array();
    for (const auto& [first, last] : s.parts) parts.push_back(Json::ordered({{"first", first}, {"last", last}}));
    out["stages"].push_back(
        Json::ordered({{"blocks", std::move(parts)}, {"arena_bytes", s.arena}, {"peak_bytes", s.peak}}));
  }
  out["communication_seconds"] = known(linked(plan, c.machine) && several(plan), times.communication);
  out["exposed_seconds"] = known(timed(plan, c.machine) && several(plan), times.exposed);
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
                       plan.labels[peak.label].text());
    for (Id id : peak.live) out += fmt::format("{:>16} {}\n", plan.buffer(id).bytes, plan.buffer(id).name);
  }
  for (const Program& program : plan.programs)
    for (const Segment& segment : program.segments) {
      out += fmt::format("{}/{} x{}: {} actions\n", program.name, segment.name, segment.repeat, segment.actions.size());
      for (size_t a = 0; a < segment.actions.size(); ++a) {
        const Action& action = segment.actions[a];
        out += fmt::format("{:>6} {:<7} {} ({}){}", a, to_string(action.queue), plan.calls[action.call].op->id,
                           plan.labels[action.label].text(), attrs(action));
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
