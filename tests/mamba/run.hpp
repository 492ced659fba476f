// SPDX-License-Identifier: Apache-2.0
// A Mamba in the engine, made by the way a run is made.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "../models/golden.hpp"
#include "core/base/error.hpp"
#include "core/execute/executor.hpp"
#include "core/program/program.hpp"
#include "core/trace/op.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

namespace mamba_test {

using models::Golden;

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/cpu", "cpu/reference", "mamba/mamba", "optim/optim", "precision/precision", "data/data"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

inline eng::Config config_of(const std::string& text) {
  const std::string whole = "[data]\nplugin = 'text'\npaths = ['none']\n" + text;
  return eng::Config::parse(whole, "test.toml", ".", {}, schemas_of(registry()));
}

enum class Use { update, gradients, generate };  // without an update the gradients of a step stay to be read

// Plan and executor.
struct Run {
  Run(const eng::Config& given, Use use)
      : config(given),
        kernels(registry(), config.section("device").string("plugin"), config.section("device")),
        precision(eng::make_precision("fp32", registry().table<eng_axis>(ENG_PRECISION_KIND, "fp32"),
                                      config.section("precision"))),
        optimizer(eng::make_optimizer("adamw", registry().table<eng_optimizer>(ENG_OPTIMIZER_KIND, "adamw"),
                                      config.section("optimizer"))),
        model(make_model(config)),
        plan(make_plan(use)),
        device(registry(), kernels.device(), config.section("device")),
        executor(plan, device, kernels) {
    executor.run("init");
    const int64_t counters[ENG_C_COUNT] = {};
    executor.upload(plan.counters, counters);
  }
  static eng::Model make_model(const eng::Config& config) {
    const std::string& name = config.section("model").string("plugin");
    const auto table = registry().table<eng_model>(ENG_MODEL_KIND, name);
    eng::load_ops(registry());
    return eng::trace_model(name, table, config.section("model"), config.section("train").integer("micro_batch"),
                            config.section("train").integer("sequence_length"), ENG_F32);
  }
  eng::Plan make_plan(Use use) {
    eng::PlanRequest request{model, precision, use == Use::update ? &optimizer : nullptr, kernels.device(), {}};
    request.train = request.evaluate = use != Use::generate;
    request.generate = use == Use::generate;
    request.workspace = [this](const eng::Call& call) { return kernels.workspace(call); };
    request.steps = config.section("train").integer("steps");
    request.grad_clip = config.section("train").number("grad_clip");
    request.seed = config.section("train").integer("seed");
    request.logits = true;
    return eng::make_plan(request);
  }
  std::vector<float> read(const eng::View& view) {
    std::vector<float> out(static_cast<size_t>(eng::count(view.desc)));
    executor.download(out.data(), view);
    return out;
  }
  std::vector<float> parameter(const std::string& name) {
    for (const eng::Tensor& tensor : plan.tensors)
      if (tensor.role == "parameter" && tensor.name == name) return read(tensor.whole());
    throw std::runtime_error("no parameter " + name);
  }

  eng::Config config;
  eng::Kernels kernels;
  eng::Precision precision;
  eng::Optimizer optimizer;
  eng::Model model;
  eng::Plan plan;
  eng::Device device;
  eng::Executor executor;
};

}  // namespace mamba_test
