// SPDX-License-Identifier: Apache-2.0
#include "session/report/context.hpp"

#include "core/autograd/recompute.hpp"
#include "session/fits.hpp"

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
  const eng_device_info& info = setup.kernels->info();
  c.device_total = info.total_bytes;
  c.machine = described(config.section("comm"), info.peak_f32);
  c.kept = kept(setup.model);
  for (const Tensor& t : setup.plan.tensors)
    if (t.role != "gradient") c.checkpoint += bytes(t.desc);
  c.checkpoints = config.section("checkpoint").integer("keep");
  return c;
}

}  // namespace eng
