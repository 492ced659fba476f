// SPDX-License-Identifier: Apache-2.0
#include "core/train/setup.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace eng {

Setup make_setup(const Config& config, Registry& registry) {
  Setup s;
  registry.pin(config.section("plugins").strings("sha256"));
  const Section &train = config.section("train"), &device = config.section("device"),
                &precision = config.section("precision"), &optimizer = config.section("optimizer"),
                &model = config.section("model");
  s.kernels = std::make_unique<Kernels>(registry, device.string("plugin"), device);
  s.precision = make_precision(precision.string("plugin"),
                               registry.table<eng_axis>(ENG_PRECISION_KIND, precision.string("plugin")), precision);
  s.optimizer =
      make_optimizer(optimizer.string("plugin"),
                     registry.table<eng_optimizer>(ENG_OPTIMIZER_KIND, optimizer.string("plugin")), optimizer);
  s.model =
      trace_model(model.string("plugin"), registry.table<eng_model>(ENG_MODEL_KIND, model.string("plugin")), model,
                  train.integer("micro_batch"), train.integer("sequence_length"), s.precision.dtype(ENG_ROLE_ACT));
  PlanRequest request{s.model, s.precision, &s.optimizer, s.kernels->device(), {}};
  const Kernels& kernels = *s.kernels;
  request.workspace = [&kernels](const Call& call) { return kernels.workspace(call); };
  request.accumulate = static_cast<uint32_t>(train.integer("accumulate"));
  request.steps = train.integer("steps");
  request.seed = train.integer("seed");
  request.grad_clip = train.number("grad_clip");
  s.plan = make_plan(request);
  return s;
}

uint64_t staging_bytes(const Plan& plan) {
  return 2 * (bytes(plan.tokens.desc) + bytes(plan.labels_in.desc));
}

uint64_t planned_peak(const Setup& setup) {
  uint64_t total = staging_bytes(setup.plan) + setup.kernels->info().overhead_bytes;
  for (const Arena& arena : setup.plan.arenas) total += arena.total();
  return total;
}

std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, uint64_t limit) {
  std::vector<std::string> edits;
  auto attempt = [&](const std::string& text, auto change) {
    Config other = config;
    change(other);
    try {
      uint64_t peak = planned_peak(make_setup(other, registry));
      if (peak > limit) return false;
      edits.push_back(fmt::format("{}: {}", text, format_bytes(static_cast<double>(peak))));
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  const Section& train = config.section("train");
  int64_t batch = train.integer("micro_batch"), accumulate = train.integer("accumulate"),
          length = train.integer("sequence_length");
  for (int64_t divisor = 2; divisor <= batch; ++divisor) {
    if (batch % divisor) continue;
    int64_t b = batch / divisor, a = accumulate * divisor;
    if (attempt(fmt::format("train.micro_batch={} train.accumulate={} (the same tokens per step)", b, a),
                [&](Config& c) {
                  c.section("train").set("micro_batch", b, "edit");
                  c.section("train").set("accumulate", a, "edit");
                }))
      break;
  }
  for (int64_t t = length / 2; t >= 16; t /= 2)
    if (attempt(fmt::format("train.sequence_length={}", t),
                [&](Config& c) { c.section("train").set("sequence_length", t, "edit"); }))
      break;
  const Section& model = config.section("model");
  int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  for (int64_t n = layers - 1; n >= 1; n = n > 8 ? n * 3 / 4 : n - 1)
    if (attempt(fmt::format("model.num_hidden_layers={} (another model)", n),
                [&](Config& c) { c.section("model").set("num_hidden_layers", n, "edit"); }))
      break;
  return edits;
}

void check_fits(const Config& config, Registry& registry, const Setup& setup) {
  uint64_t limit = setup.kernels->info().total_bytes, peak = planned_peak(setup);
  if (!limit || peak <= limit) return;
  std::string help;
  auto edits = edits_that_fit(config, registry, limit);
  if (edits.empty()) help = "no smaller batch or sequence fits either: take a smaller model";
  for (const auto& e : edits) help += (help.empty() ? "any one of these fits:\n  " : "\n  ") + e;
  throw Error(setup.kernels->info().dl_device_type == kDLCPU ? Exit::host_memory : Exit::device_memory,
              fmt::format("the plan needs {}, device {} has {}: {} too much", format_bytes(static_cast<double>(peak)),
                          setup.kernels->device(), format_bytes(static_cast<double>(limit)),
                          format_bytes(static_cast<double>(peak - limit))),
              help);
}

}  // namespace eng
