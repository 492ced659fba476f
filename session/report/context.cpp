// SPDX-License-Identifier: Apache-2.0
#include "session/report/context.hpp"

#include "session/cards/device_section.hpp"
#include "session/model/context_parallel.hpp"
#include "session/model/pipeline.hpp"
#include "session/model/recompute.hpp"
#include "session/model/reference.hpp"
#include "session/model/tensor_parallel.hpp"
#include "session/model/transforms.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/free_workspace.hpp"

namespace eng {

ReportContext report_context(const Setup& setup, const Config& config) {
  const Section &train = config.section("train"), &model = config.section("model");
  ReportContext c;
  static_cast<Beside&>(c) = beside(setup);
  c.title = fmt::format("{}{}  micro-batch {} x {}, sequence {}, {}, {}", setup.model.plugin,
                        model.has("preset") ? " " + model.string("preset") : "", train.integer("micro_batch"),
                        train.integer("accumulate"), train.integer("sequence_length"), setup.precision.name,
                        setup.optimizer.name);
  if (setup.sharding) c.title += fmt::format(", {} on {} ranks", setup.sharding->name, setup.plan.ranks.world.size);
  if (const auto& card = setup.target.card) {
    c.card = card->name;
    c.assumed = card->assumes("reserve") || (setup.plan.ranks.world.size > 1 && card->assumes("communicator"));
  }
  c.capped = setup.target.workspace > 0;
  c.workspace = workspace_text(config.section("device"));
  c.attention_workspace = workspace_of(config.section("device"));
  c.device_total = available(setup).device, c.host_total = available(setup).host;
  c.arena_total = available(setup).arena;
  c.storage_total = available(setup).storage;
  c.machine = machine_of(config.section("comm"), setup.target, setup.storage);
  c.step_at_peak = seconds_at_peak(setup.model, setup.target) * static_cast<double>(train.integer("micro_batch")) *
                   static_cast<double>(train.integer("accumulate") * train.integer("sequence_length"));
  c.step_at_peak /= setup.plan.ranks.same_rows() * setup.plan.ranks.pipeline;
  c.weights = weight_bytes(setup.plan, setup.precision);
  c.host_update = setup.host_update;
  c.kept = kept(setup.model);
  c.transforms = transform_lines(setup.model);
  c.parallel = parallel_line(setup.model, setup.plan.ranks);
  c.context = context_line(setup.model, setup.plan.ranks);
  c.pipeline = pipeline_line(setup.model, setup.plan.ranks, setup.plan.accumulate);
  c.heads = padded_heads(setup.model);
  c.reference = reference_line(setup.model, config);
  for (const Tensor& t : setup.plan.tensors)
    if (is_saved(t) && !saves_nothing(config.section("checkpoint"))) c.checkpoint += bytes(t.desc);
  if (setup.kept) c.checkpoint = setup.kept;
  const auto& checkpoint = config.section("checkpoint");
  c.checkpoints = setup.kept ? 1 : checkpoint.integer("keep");
  if (c.checkpoints && checkpoint.boolean("best")) ++c.checkpoints;
  return c;
}

}  // namespace eng
