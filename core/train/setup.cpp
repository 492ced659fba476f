// SPDX-License-Identifier: Apache-2.0
#include "core/train/setup.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/trace/plugin_ops.hpp"

namespace eng {

Setup make_setup(const Config& config, Registry& registry, int64_t generate) {
  Setup s;
  registry.pin(config.section("plugins").strings("sha256"));
  const Section &train = config.section("train"), &device = config.section("device"),
                &precision = config.section("precision"), &optimizer = config.section("optimizer"),
                &model = config.section("model");
  s.kernels = std::make_unique<Kernels>(registry, device.string("plugin"), device);
  s.precision = make_precision(precision.string("plugin"),
                               registry.table<eng_axis>(ENG_PRECISION_KIND, precision.string("plugin")), precision);
  if (!generate)
    s.optimizer =
        make_optimizer(optimizer.string("plugin"),
                       registry.table<eng_optimizer>(ENG_OPTIMIZER_KIND, optimizer.string("plugin")), optimizer);
  const eng_model model_table = registry.table<eng_model>(ENG_MODEL_KIND, model.string("plugin"));
  load_ops(registry);
  s.model = trace_model(model.string("plugin"), model_table, model, generate ? 1 : train.integer("micro_batch"),
                        generate ? generate : train.integer("sequence_length"), s.precision.dtype(ENG_ROLE_ACT));
  PlanRequest request{s.model, s.precision, generate ? nullptr : &s.optimizer, s.kernels->device(), {}};
  const Kernels& kernels = *s.kernels;
  request.workspace = [&kernels](const Call& call) { return kernels.workspace(call); };
  request.accumulate = generate ? 1 : static_cast<uint32_t>(train.integer("accumulate"));
  request.steps = train.integer("steps");
  request.seed = train.integer("seed");
  request.train = request.evaluate = !generate;
  request.generate = generate > 0;
  request.grad_clip = train.number("grad_clip");
  s.plan = make_plan(request);
  if (!generate && config.section("checkpoint").boolean("asynchronous"))
    s.snapshot = snapshot_bytes(saved_tensors(s.plan));
  return s;
}

uint64_t staging_bytes(const Plan& plan) {
  return 2 * (bytes(plan.tokens.desc) + bytes(plan.labels_in.desc));
}

uint64_t arena_bytes(const Plan& plan) {
  uint64_t total = 0;
  for (const Arena& arena : plan.arenas) total += arena.total();
  return total;
}

uint64_t planned_peak(const Setup& setup) {
  return arena_bytes(setup.plan) + staging_bytes(setup.plan) + setup.snapshot + setup.kernels->info().overhead_bytes;
}

std::vector<TensorShare> saved_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  for (const Tensor& t : plan.tensors)
    if (t.role != "gradient") {
      const eng_desc& d = t.view.desc;
      out.push_back({t.name, t.role, d.dtype, {d.dims, d.dims + d.ndim}});
    }
  return whole(out);
}

std::vector<TensorShare> parameters(const Plan& plan) {
  auto out = saved_tensors(plan);
  std::erase_if(out, [](const TensorShare& t) { return t.role != kParameterRole; });
  return out;
}

std::filesystem::path weights_source(const Config& config) {
  const Section& model = config.section("model");
  return model.has("from") ? config.base_dir() / model.string("from") : std::filesystem::path();
}

const Pretrained& pretrained_table(const Config& config, const Registry& registry) {
  return registry.find(ENG_MODEL_KIND, config.section("model").string("plugin"))->schema.pretrained;
}

std::string model_hash(const Plan& plan) {
  std::string text;
  for (const TensorShare& t : parameters(plan)) text += fmt::format("{} {}\n", t.name, fmt::join(t.shape, " "));
  return Checksum::of(text);
}

}  // namespace eng
