// SPDX-License-Identifier: Apache-2.0
#include "session/planning/stages.hpp"

#include <algorithm>

#include "session/planning/estimate.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/peak.hpp"
#include "session/planning/staged.hpp"

namespace eng {

StagePlan stage_plan(const Setup& setup, const Config& config, const Machine& machine) {
  const Plan& plan = setup.plan;
  StagePlan out;
  const Model& model = setup.model;
  std::map<std::string, size_t> part_of;  // by the name of a block
  for (const Span& part : model.parts) {
    for (uint32_t b = part.first; b < part.end; ++b) part_of[model.blocks[b].name] = out.parts.size();
    out.parts.emplace_back(model.blocks[part.first].name, model.blocks[part.end - 1].name);
  }
  out.text = blocks_text(model);
  out.times.resize(out.parts.size());
  out.arena = plan.arenas[0].total(), out.peak = planned_peak(setup);
  const Segment& step = plan.program("train").segments.front();
  const Simulated simulated = simulate(plan, step, machine);
  size_t exchanges = 0;
  for (size_t a = 0; a < step.actions.size(); ++a) {
    const double seconds = simulated.actions[a].seconds;
    const Label& label = plan.labels[step.actions[a].label];
    if (label.of == pipeline_label && plan.calls[step.actions[a].call].op->collective)
      out.exchange += seconds, ++exchanges;
    const auto part = part_of.find(label.of);
    if (step.actions[a].queue != Queue::compute || part == part_of.end()) continue;
    StageTime& time = out.times[part->second];
    if (label.phase == Phase::forward) time.forward += seconds / plan.accumulate;
    if (label.phase == Phase::backward) time.backward += seconds / plan.accumulate;
  }
  if (exchanges) out.exchange /= static_cast<double>(exchanges);
  // A step gathers updated weights once, and may sum its gradients once.
  std::vector<Phase> once = {Phase::publish};
  if (config.section("train").string("reduce") == "step") once.push_back(Phase::reduce);
  const double passes = seconds_without(once, plan, step, machine), computing = plan.accumulate * out.seconds();
  for (StageTime& time : out.times)
    if (computing > 0) time.forward *= passes / computing, time.backward *= passes / computing;
  const StepTimes times = step_times(plan, machine);
  out.once = times.step - times.bubble - passes;
  return out;
}

uint32_t enough_micro_batches(const Pipeline& all) {
  // With virtual stages, groups of micro-batches follow each other, which have to be as large as those of all. Passes
  // of the first and the last groups overlap, of two ranks those of six. Forwards of a reference are a group ahead.
  const uint32_t groups = std::max(3 * all.ranks, 2 * all.ranks + 8) + (all.reference ? all.ranks : 0);
  const uint32_t some = all.parts > 1 ? groups + all.micro_batches % all.ranks : 2 * all.ranks;
  return std::min(all.micro_batches, some);
}

Growth growth(const Setup& setup, uint32_t all) {
  const double more = double(all) / setup.plan.accumulate - 1;
  const Beside side = beside(setup);
  Growth out{0, static_cast<uint64_t>(more * double(side.bookkeeping + side.staging))};
  for (const Buffer& b : setup.plan.buffers)
    if (b.persistent && b.line == Line::batch)
      (setup.plan.arenas[b.arena].kind == "device" ? out.device : out.host) +=
          static_cast<uint64_t>(more * double(b.bytes));
  return out;
}

Peak with_more(Peak peak, const Growth& more, const Setup& setup) {
  const bool host_arenas = setup.target.host_memory();
  const uint32_t local = std::max(setup.plan.ranks.world.local_size, 1U);
  peak.arena += more.device, peak.device += more.device;
  peak.host += more.host + (host_arenas ? more.device : 0);
  peak.rank = host_arenas ? peak.host : peak.device;
  peak.machine = peak.rank * (host_arenas ? local : 1);
  peak.hosts = peak.host * local;
  return peak;
}

std::vector<StagePlan> plan_stages(const Config& config, Registry& registry, const Setup& own, const Machine& machine) {
  const Ranks& ranks = own.plan.ranks;
  const uint32_t all = own.plan.accumulate, enough = enough_micro_batches(pipeline_of(ranks, all));
  Config with = config;
  with.section("train").set("accumulate", int64_t{enough}, "derived");
  std::vector<StagePlan> out;
  for (uint32_t s = 0; s < ranks.pipeline && ranks.pipeline > 1; ++s) {
    if (s == ranks.stage()) {
      out.push_back(stage_plan(own, config, machine));
      continue;
    }
    World world = ranks.world;
    world.rank = s * ranks.stage_size(), world.local_rank = world.rank % std::max(world.local_size, 1u);
    const Setup other = make_plan_only(with, registry, world);
    const Growth more = growth(other, all);
    out.push_back(stage_plan(other, with, machine));
    out.back().arena += more.device;
    out.back().peak = with_more(peak_of(other.plan, beside(other)), more, other).rank;
  }
  return out;
}

static double passes_seconds(const std::vector<StagePlan>& stages, const Pipeline& pipeline) {
  std::vector<std::vector<StageTime>> times;
  double exchange = 0;
  for (const StagePlan& s : stages) times.push_back(s.times), exchange = std::max(exchange, s.exchange);
  const auto borders = static_cast<double>(stages.size() - 1);
  return pipeline_seconds(pipeline, times, 0) + 2 * borders * exchange;  // others are part of the times
}

double step_seconds(const std::vector<StagePlan>& stages, const Pipeline& pipeline) {
  double once = 0;
  for (const StagePlan& s : stages) once = std::max(once, s.once);
  return passes_seconds(stages, pipeline) + once;
}

double bubble(const std::vector<StagePlan>& stages, const Pipeline& pipeline) {
  double busy = 0;
  for (const StagePlan& s : stages) busy = std::max(busy, pipeline.micro_batches * s.seconds());
  const double passes = passes_seconds(stages, pipeline);
  return passes > 0 ? 1 - busy / passes : 0;
}

std::string stages_text(const std::vector<StagePlan>& stages, const Pipeline& pipeline, bool timed) {
  std::string out;
  for (const StagePlan& s : stages) {
    out += fmt::format("  stage {:<3}         {}: {} of the device, {} in all", &s - stages.data() + 1, s.text,
                       format_bytes(double(s.arena)), format_bytes(double(s.peak)));
    if (timed) out += fmt::format("; {:.3g} ms a micro-batch", 1e3 * s.seconds());
    out += "\n";
  }
  if (timed && !stages.empty())
    out += fmt::format("  bubble            {:.1f} % of a step, by the times of the stages: the slowest one waits\n",
                       100 * bubble(stages, pipeline));
  return out;
}

}  // namespace eng
