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
  return arena_bytes(setup.plan) + staging_bytes(setup.plan) + setup.kernels->info().overhead_bytes;
}

std::vector<TensorSpec> saved_tensors(const Plan& plan) {
  std::vector<TensorSpec> out;
  for (const Tensor& t : plan.tensors)
    if (t.role != "gradient") {
      const eng_desc& d = t.view.desc;
      out.push_back({t.name, t.role, d.dtype, {d.dims, d.dims + d.ndim}});
    }
  return out;
}

std::string model_hash(const Plan& plan) {
  std::string text;
  for (const TensorSpec& t : saved_tensors(plan))
    if (t.role == kParameterRole) text += fmt::format("{} {}\n", t.name, fmt::join(t.shape, " "));
  return Checksum::of(text);
}

std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, uint64_t limit) {
  struct Edit {
    const char *section, *key;
    int64_t value;
  };
  std::vector<std::string> found;
  auto fits = [&](const std::vector<Edit>& edits, const char* note) {
    Config other = config;
    std::string text;
    for (const Edit& e : edits) {
      other.section(e.section).set(e.key, e.value, "edit");
      text += fmt::format("{}.{}={} ", e.section, e.key, e.value);
    }
    try {
      uint64_t peak = planned_peak(make_setup(other, registry));
      if (peak <= limit) found.push_back(fmt::format("{}{}: {}", text, note, format_bytes(static_cast<double>(peak))));
      return peak <= limit;
    } catch (const Error&) {
      return false;
    }
  };
  const Section &train = config.section("train"), &model = config.section("model");
  int64_t batch = train.integer("micro_batch"), accumulate = train.integer("accumulate");
  for (int64_t n = 2; n <= batch; ++n)
    if (batch % n == 0 && fits({{"train", "micro_batch", batch / n}, {"train", "accumulate", accumulate * n}},
                               "(the same tokens per step)"))
      break;
  for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2)
    if (fits({{"train", "sequence_length", t}}, "(less context)")) break;
  int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  for (int64_t n = layers - 1; n >= 1; n = n > 8 ? n * 3 / 4 : n - 1)
    if (fits({{"model", "num_hidden_layers", n}}, "(another model)")) break;
  return found;
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
