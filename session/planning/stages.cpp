// SPDX-License-Identifier: Apache-2.0
#include "session/planning/stages.hpp"

#include <algorithm>

#include "session/planning/estimate.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/staged.hpp"

namespace eng {

static StagePlan stage_plan(const Setup& setup, const Machine& machine) {
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
  return out;
}

std::vector<StagePlan> plan_stages(const Config& config, Registry& registry, const Setup& own, const Machine& machine) {
  const Ranks& ranks = own.plan.ranks;
  std::vector<StagePlan> out;
  for (uint32_t s = 0; s < ranks.pipeline && ranks.pipeline > 1; ++s) {
    World world = ranks.world;
    world.rank = s * ranks.stage_size(), world.local_rank = world.rank % std::max(world.local_size, 1u);
    out.push_back(s == ranks.stage() ? stage_plan(own, machine)
                                     : stage_plan(make_plan_only(config, registry, world), machine));
  }
  return out;
}

double bubble(const std::vector<StagePlan>& stages, uint32_t micro_batches) {
  std::vector<std::vector<StageTime>> times;
  double busy = 0, exchange = 0;
  for (const StagePlan& s : stages) {
    times.push_back(s.times);
    busy = std::max(busy, micro_batches * s.seconds());
    exchange = std::max(exchange, s.exchange);
  }
  const double step = pipeline_seconds(times, micro_batches, exchange);
  return step > 0 ? 1 - busy / step : 0;
}

std::string stages_text(const std::vector<StagePlan>& stages, uint32_t micro_batches, bool timed) {
  std::string out;
  for (const StagePlan& s : stages) {
    out += fmt::format("  stage {:<3}         {}: {} of the device, {} in all", &s - stages.data() + 1, s.text,
                       format_bytes(double(s.arena)), format_bytes(double(s.peak)));
    if (timed) out += fmt::format("; {:.3g} ms a micro-batch", 1e3 * s.seconds());
    out += "\n";
  }
  if (timed && !stages.empty())
    out += fmt::format("  bubble            {:.1f} % of a step, by the times of the stages: the slowest one waits\n",
                       100 * bubble(stages, micro_batches));
  return out;
}

}  // namespace eng
