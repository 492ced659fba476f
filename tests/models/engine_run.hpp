// SPDX-License-Identifier: Apache-2.0
// A golden run by the engine: its configuration, its parameters, steps on its batches.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "core/execute/executor.hpp"
#include "core/program/program.hpp"
#include "core/trace/op.hpp"
#include "engine/ops.h"
#include "golden.hpp"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

namespace models {

inline const std::vector<std::string> devices = {"cpu", "reference"};
constexpr double limit = 1e-4;  // max|a-b| / max|b| per tensor

inline eng::Registry& registry() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/cpu", "cpu/reference", "llama/llama", "decoders/decoders", "moe/moe", "opt/opt", "mamba/hybrids",
          "mamba/mamba", "optim/optim", "optim/muon", "precision/precision", "data/data"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// The configuration of a golden: JSON writes numbers, strings, booleans and lists as TOML does.
inline std::string config_text(const Golden& golden, const std::string& device) {
  std::string out = "[model]\nplugin = '" + golden.model() + "'\n";
  for (const auto& [key, value] : golden.about["options"].items()) out += key + " = " + value.dump() + "\n";
  out += "[data]\nplugin = 'text'\npaths = ['none']\n[device]\nplugin = '" + device + "'\n";
  const auto& dims = golden.at("tokens").dims;
  out += "[train]\nmicro_batch = " + std::to_string(dims[0]) + "\nsequence_length = " + std::to_string(dims[1]) + "\n";
  const auto training = golden.about.value("training", nlohmann::json());
  if (training.is_null()) return out + "steps = 1\n";
  out +=
      "steps = " + std::to_string(training["losses"].size()) + "\ngrad_clip = " + training["grad_clip"].dump() + "\n";
  out += "[optimizer]\nplugin = 'adamw'\n";
  for (const char* key : {"learning_rate", "beta1", "beta2", "eps", "weight_decay"})
    out += std::string(key) + " = " + training[key].dump() + "\n";
  return out;
}

struct Setup {
  Setup(const eng::Config& config, const std::string& model_name, const std::string& device_name, bool update)
      : kernels(registry(), device_name, config.section("device")),
        precision(eng::make_precision("fp32", registry().table<eng_axis>(ENG_PRECISION_KIND, "fp32"),
                                      config.section("precision"))),
        optimizer(eng::make_optimizer("adamw", registry().table<eng_optimizer>(ENG_OPTIMIZER_KIND, "adamw"),
                                      config.section("optimizer"))),
        model(make_model(config, model_name)) {
    eng::PlanRequest request{model, precision, update ? &optimizer : nullptr, device_name, {}};
    request.workspace = [this](const eng::Call& call) { return kernels.workspace(call); };
    request.steps = config.section("train").integer("steps");
    request.grad_clip = config.section("train").number("grad_clip");
    request.logits = true;
    plan = eng::make_plan(request);
  }
  static eng::Model make_model(const eng::Config& config, const std::string& name) {
    const auto table = registry().table<eng_model>(ENG_MODEL_KIND, name);
    eng::load_ops(registry());
    const eng::Section& train = config.section("train");
    return eng::trace_model(name, table, config.section("model"), train.integer("micro_batch"),
                            train.integer("sequence_length"), ENG_F32);
  }
  eng::Kernels kernels;
  eng::Precision precision;
  eng::Optimizer optimizer;
  eng::Model model;
  eng::Plan plan;
};

// Without an update the gradients of a step stay to be read.
struct Run {
  Run(const Golden& g, const std::string& device_name, bool update = false)
      : golden(g),
        config(eng::Config::parse(config_text(g, device_name), "golden.toml", ".", {}, schemas_of(registry()))),
        setup(config, g.model(), device_name, update),
        device(registry(), device_name, config.section("device")),
        executor(setup.plan, device, setup.kernels) {
    executor.run("init");
    const int64_t counters[ENG_C_COUNT] = {};
    executor.upload(setup.plan.counters, counters);
    for (const eng::Tensor& tensor : setup.plan.tensors) {
      if (tensor.role != "parameter") continue;
      const std::vector<double>& from = golden.at("param." + tensor.name).data;
      const std::vector<float> values(from.begin(), from.end());
      REQUIRE(static_cast<int64_t>(values.size()) == eng::count(tensor.desc));
      executor.upload(tensor.whole(), values.data());
    }
  }
  void learning_rate(double rate) {
    std::vector<float> table;
    for (int64_t k = 1; k <= config.section("train").integer("steps"); ++k) {
      table.push_back(static_cast<float>(rate));
      for (float x : setup.optimizer.scalars(static_cast<uint64_t>(k))) table.push_back(x);
    }
    executor.upload(setup.plan.table, table.data());
  }
  // One step on (B, T) tokens and labels; the mean loss.
  double step(const double* tokens, const double* labels) {
    const size_t n = golden.at("tokens").data.size();
    const std::vector<int32_t> t(tokens, tokens + n), l(labels, labels + n);
    const auto valid = std::count_if(l.begin(), l.end(), [](int32_t label) { return label != -100; });
    const float inputs[8] = {1.0f / static_cast<float>(valid)};
    executor.upload(setup.plan.field("tokens"), t.data());
    executor.upload(setup.plan.field("labels"), l.data());
    executor.upload(setup.plan.inputs, inputs);
    executor.run("train");
    float sum = 0;
    executor.download(&sum, setup.plan.losses, 0, sizeof sum);  // of the loss alone: its terms lie behind it
    return static_cast<double>(sum) / static_cast<double>(valid);
  }
  // The number of parameters that training changes.
  size_t trained() const {
    return static_cast<size_t>(std::count_if(setup.model.params.begin(), setup.model.params.end(),
                                             [](const auto& p) { return !(p.flags & ENG_PARAM_FROZEN); }));
  }
  double step() { return step(golden.at("tokens").data.data(), golden.at("labels").data.data()); }
  double grad_norm() {
    float norm = 0;
    executor.download(&norm, setup.plan.scalars, ENG_S_NORM * sizeof(float), sizeof norm);
    return norm;
  }
  double logits_error() {
    const std::vector<double>& theirs = golden.at("logits").data;
    const std::vector<int32_t> tokens(golden.at("tokens").data.begin(), golden.at("tokens").data.end());
    executor.upload(setup.plan.field("tokens"), tokens.data());
    executor.run("logits");
    std::vector<float> ours(static_cast<size_t>(eng::count(setup.plan.logits.desc)));
    executor.download(ours.data(), setup.plan.logits);
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < theirs.size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(ours.at(i)) - theirs[i]));
      size = std::max(size, std::abs(theirs[i]));
    }
    return difference / size;
  }
  // The largest error of any gradient; `worst` is its parameter, `seen` how many were compared.
  double gradient_error(std::string& worst, size_t& seen, double factor = 1.0) {
    double most = 0.0, largest = 0.0;
    for (const auto& [name, tensor] : golden.tensors)
      if (name.rfind("grad.", 0) == 0)
        for (double g : tensor.data) largest = std::max(largest, std::abs(g));
    for (const eng::Tensor& tensor : setup.plan.tensors) {
      if (tensor.role != "gradient") continue;
      ++seen;
      std::vector<float> ours(static_cast<size_t>(eng::count(tensor.desc)));
      executor.download(ours.data(), tensor.whole());
      const std::vector<double>& theirs = golden.at("grad." + tensor.name).data;
      double difference = 0.0, size = 0.0;
      for (size_t i = 0; i < theirs.size(); ++i) {
        difference = std::max(difference, std::abs(factor * static_cast<double>(ours.at(i)) - theirs[i]));
        size = std::max(size, std::abs(theirs[i]));
      }
      if (size == 0.0) size = largest;  // a gradient of nothing is measured against the others
      if (!(difference / size <= most)) most = difference / size, worst = tensor.name;
    }
    return most;
  }

  const Golden& golden;
  eng::Config config;
  Setup setup;
  eng::Device device;
  eng::Executor executor;
};

// The distance of losses and norms of the golden's training from the engine's, which learns `rate_factor` times as
// fast.
inline double training_deviation(const Golden& golden, const std::string& device, double rate_factor) {
  const auto& training = golden.about["training"];
  const std::vector<double> losses = training["losses"], norms = training["grad_norms"];
  Run run(golden, device, true);
  run.learning_rate(rate_factor * training["learning_rate"].get<double>());
  const size_t n = golden.at("tokens").data.size();
  double worst = 0.0;
  for (size_t k = 0; k < losses.size(); ++k) {
    const double loss =
        run.step(golden.at("train.tokens").data.data() + k * n, golden.at("train.labels").data.data() + k * n);
    worst = std::max({worst, std::abs(loss / losses[k] - 1.0), std::abs(run.grad_norm() / norms[k] - 1.0)});
  }
  return worst;
}

}  // namespace models
