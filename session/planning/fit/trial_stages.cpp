// SPDX-License-Identifier: Apache-2.0
// Pipelines: stages that are planned with few micro-batches tell about a step of many.
#include <algorithm>

#include "session/model/recompute.hpp"
#include "session/planning/fit/trial.hpp"
#include "session/planning/stages.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

constexpr int64_t planned_whole = 8;  // layers of a model all of whose stages are planned to bound a step

// The most passes whose activations a rank keeps at a time, each of a micro-batch and a part. Nothing goes back through
// the parts of a reference.
uint32_t in_flight(const Pipeline& p, uint32_t rank) {
  const uint32_t groups = std::max(p.micro_batches / p.ranks, 1U), behind = p.ranks - 1 - rank;
  const uint32_t group = (p.micro_batches + groups - 1) / groups, parts = p.parts - p.reference;
  const uint32_t ahead = parts == 1 ? behind : (parts - 1) * group + 2 * behind;
  return std::min(parts * p.micro_batches, ahead + 1);
}

}  // namespace

struct Trial::Stage {
  Tried tried;
  StagePlan plan;
  std::vector<double> flops;  // of each virtual stage of all
};

Trial::Stage Trial::stage(const Edits& edits, const World& world, uint32_t number, uint32_t micro_batches,
                          bool placed) {
  Stage out;
  out.tried = guarded(edits, world, [&] {
    Config with = edited(config_, registry_, edits, world.size);
    const auto all = static_cast<uint32_t>(with.section("train").integer("accumulate"));
    with.section("train").set("accumulate", int64_t{micro_batches}, "edit");
    const Ranks ranks = divided_ranks(with, world);
    World here = world;
    here.rank = number * ranks.stage_size(), here.local_rank = here.rank % std::max(world.local_size, 1U);
    const Setup setup = placed ? make_plan_only(with, registry_, here) : make_sketch(with, registry_, here);
    Tried tried = measured(setup, with, edits);
    out.plan = stage_plan(setup, with, rates_of(setup, with));
    out.flops = stage_flops(setup.model, stage_firsts(setup.model, ranks, with.section("parallel").strings("cuts")));
    // Two micro-batches do not hide the exchanges that the first and the last stage wait for, as many do.
    const double waits = (2 * ranks.virtual_stages - 1) * out.plan.exchange, seconds = out.plan.seconds();
    if (const uint32_t enough = enough_micro_batches(pipeline_of(ranks, all));
        micro_batches < enough && waits < seconds)
      for (StageTime& time : out.plan.times) time.forward *= 1 - waits / seconds, time.backward *= 1 - waits / seconds;
    Growth more = growth(setup, all);
    if (!placed) more.host = 0;  // of so few, the part of the lists that grows is not known
    const Pipeline planned = pipeline_of(ranks, micro_batches), step = pipeline_of(ranks, all);
    if (micro_batches < enough_micro_batches(step))
      more.device += (in_flight(step, number) - in_flight(planned, number)) *
                     (kept(setup.model).bytes / (planned.parts - planned.reference));
    tried.peak = with_more(tried.peak, more, setup);
    tried.excess = excess(tried.peak, available_);
    tried.computing *= double(all) / micro_batches;
    tried.placed = placed;
    return tried;
  });
  return out;
}

// The step takes as long as the passes of all stages take, one waiting for another, and the slowest update. The first
// stage keeps most at a time, and the last one has the head.
Tried Trial::staged(const Edits& edits, const World& world, bool placed) {
  Config with = config_;
  const Tried possible = guarded(edits, world, [&] {
    with = edited(config_, registry_, edits, world.size);
    check_pipeline(with, false);
    return Tried();
  });
  --plans_;
  if (!possible.refused.empty()) return possible;
  const Ranks ranks = divided_ranks(with, world);
  const Pipeline step = pipeline_of(ranks, static_cast<uint32_t>(with.section("train").integer("accumulate")));
  const Section& model = with.section("model");
  const bool all = placed || !model.has("num_hidden_layers") || model.integer("num_hidden_layers") <= planned_whole;
  const uint32_t micro_batches = all ? enough_micro_batches(step) : std::min(step.micro_batches, 2U);
  Tried out;
  std::vector<StagePlan> stages(step.ranks);
  std::vector<double> flops;
  for (uint32_t s = 0; s < step.ranks; s += all || s + 1 == step.ranks ? 1 : step.ranks - 1) {
    Stage one = stage(edits, world, s, micro_batches, placed);
    if (!one.tried.refused.empty()) return one.tried;
    stages[s] = std::move(one.plan), flops = std::move(one.flops);
    const uint64_t fixed = std::max(out.fixed, one.tried.fixed);
    const double computing = std::max(out.computing, one.tried.computing);
    const auto size = [](const Tried& t) { return std::pair(t.excess.bytes, t.peak.machine); };
    if (!s || size(one.tried) > size(out)) out = std::move(one.tried);
    out.fixed = fixed, out.computing = computing;
    if (placed && out.excess.bytes) return out;
  }
  double work = 0;
  for (uint32_t part = 0; part < step.parts; ++part) work += flops[step.stage(0, part)];
  const double rate = work > 0 ? stages[0].seconds() / work : 0;
  for (uint32_t s = 0; s < step.ranks; ++s)
    for (auto part = static_cast<uint32_t>(stages[s].times.size()); part < step.parts; ++part) {
      const double seconds = rate * flops[step.stage(s, part)];
      const double forward = part < step.reference ? seconds : seconds / 3;  // a reference has no backward
      stages[s].times.push_back({forward, seconds - forward});
    }
  out.seconds = step_seconds(stages, step);
  return out;
}

}  // namespace eng
