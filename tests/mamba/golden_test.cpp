// SPDX-License-Identifier: Apache-2.0
// Logits, losses, gradients and updates of tiny Mambas against Hugging Face transformers and torch.optim.AdamW.
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace mamba_test;

namespace {

const std::vector<std::string> devices = {"cpu", "reference"};
const char* const variants[] = {"n16", "n8", "wide", "bias", "bare"};
constexpr double logits_limit = 1e-4, gradient_limit = 1e-3;  // max|a-b| / max|b| per tensor

// JSON writes numbers, strings and booleans as TOML does.
std::string config_text(const Golden& golden, const std::string& device) {
  const auto& dims = golden.at("tokens").dims;
  std::string out = "[model]\nplugin = 'mamba'\n";
  for (const auto& [key, value] : golden.about["options"].items()) out += key + " = " + value.dump() + "\n";
  out += "[device]\nplugin = '" + device + "'\n[train]\nmicro_batch = " + std::to_string(dims[0]) +
         "\nsequence_length = " + std::to_string(dims[1]) + "\n";
  const auto training = golden.about.value("training", nlohmann::json());
  if (training.is_null()) return out + "steps = 1\n";
  out += "steps = " + std::to_string(training["losses"].size()) + "\ngrad_clip = " + training["grad_clip"].dump() +
         "\n[optimizer]\nplugin = 'adamw'\n";
  for (const char* key : {"learning_rate", "beta1", "beta2", "eps", "weight_decay"})
    out += std::string(key) + " = " + training[key].dump() + "\n";
  return out;
}

double error_of(const std::vector<float>& ours, const std::vector<double>& theirs, double factor = 1.0) {
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    difference = std::max(difference, std::abs(factor * static_cast<double>(ours.at(i)) - theirs[i]));
    size = std::max(size, std::abs(theirs[i]));
  }
  return difference / size;
}

struct GoldenRun : Run {
  GoldenRun(const Golden& g, const std::string& device_name, Use use = Use::gradients)
      : Run(config_of(config_text(g, device_name)), use), golden(g) {
    for (const eng::Tensor& tensor : plan.tensors) {
      if (tensor.role != "parameter") continue;
      const std::vector<double>& from = golden.at("param." + tensor.name).data;
      const std::vector<float> values(from.begin(), from.end());
      REQUIRE(golden.at("param." + tensor.name).dims ==
              std::vector<int64_t>(tensor.desc.dims, tensor.desc.dims + tensor.desc.ndim));
      executor.upload(tensor.whole(), values.data());
    }
  }
  // One step on (B, T) tokens and labels; the mean loss.
  double step(const std::string& prefix = "", size_t k = 0) {
    const size_t n = golden.at("tokens").data.size();
    const double *tokens = golden.at(prefix + "tokens").data.data() + k * n,
                 *labels = golden.at(prefix + "labels").data.data() + k * n;
    const std::vector<int32_t> t(tokens, tokens + n), l(labels, labels + n);
    const auto valid = std::count_if(l.begin(), l.end(), [](int32_t label) { return label != -100; });
    const float inputs[8] = {1.0f / static_cast<float>(valid)};
    executor.upload(plan.field("tokens"), t.data());
    executor.upload(plan.field("labels"), l.data());
    executor.upload(plan.inputs, inputs);
    executor.run("train");
    return static_cast<double>(read(plan.losses)[0]) / static_cast<double>(valid);
  }
  double logits_error(double factor = 1.0) {
    const auto& tokens = golden.at("tokens").data;
    const std::vector<int32_t> t(tokens.begin(), tokens.end());
    executor.upload(plan.field("tokens"), t.data());
    executor.run("logits");
    return error_of(read(plan.logits), golden.at("logits").data, factor);
  }
  // The largest error of any gradient; `worst` is its parameter, `seen` how many were compared.
  double gradient_error(std::string& worst, size_t& seen, double factor = 1.0) {
    double most = 0.0;
    for (const eng::Tensor& tensor : plan.tensors) {
      if (tensor.role != "gradient") continue;
      ++seen;
      const double error = error_of(read(tensor.whole()), golden.at("grad." + tensor.name).data, factor);
      if (!(error <= most)) most = error, worst = tensor.name;
    }
    return most;
  }
  const Golden& golden;
};

}  // namespace

TEST_CASE("logits, loss and every gradient of Mamba are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const char* variant : variants) {
    const Golden golden = models::read_golden(variant, "mamba");
    GoldenRun run(golden, device);
    INFO(variant << " on " << device);
    CHECK(run.logits_error() < logits_limit);
    CHECK(run.logits_error(1.001) > logits_limit);  // the twin: 0.1 % too large
    CHECK(run.step() == Approx(golden.about["loss"].get<double>()).epsilon(1e-5));
    std::string worst;
    size_t seen = 0;
    const double error = run.gradient_error(worst, seen);
    INFO("worst: " << worst);
    CHECK(error < gradient_limit / 10);
    CHECK(seen == run.model.params.size());
    CHECK(run.gradient_error(worst, seen, 1.01) > gradient_limit);
  }
}

TEST_CASE("another epsilon, bias, tap or state is seen in the gradients of Mamba") {
  Golden golden = models::read_golden("wide", "mamba");
  golden.about["options"]["layer_norm_epsilon"] = 1.2e-2;
  std::string worst;
  size_t seen = 0;
  GoldenRun other(golden, devices[0]);
  other.step();
  CHECK(other.gradient_error(worst, seen) > gradient_limit);
  for (const char* name : {"mixer.conv1d.bias", "mixer.conv1d.weight", "mixer.A_log", "mixer.D", "mixer.dt_proj.bias",
                           "mixer.in_proj.bias", "mixer.x_proj.weight"}) {
    Golden faulty = models::read_golden("bias", "mamba");
    faulty.tensors.at("param.backbone.layers.1." + std::string(name)).data[0] += 0.1;
    GoldenRun run(faulty, devices[0]);
    run.step();
    INFO(name);
    CHECK(run.gradient_error(worst, seen) > gradient_limit);
  }
}

TEST_CASE("twenty updates of AdamW on Mamba follow torch, clipped and unclipped, no decay on A_log and D") {
  const std::string device = GENERATE(from_range(devices));
  const Golden golden = models::read_golden("n16", "mamba");
  const auto& training = golden.about["training"];
  const std::vector<double> losses = training["losses"], norms = training["grad_norms"];
  const auto deviation = [&](double rate_factor) {
    GoldenRun run(golden, device, Use::update);
    std::vector<float> table;
    for (size_t k = 1; k <= losses.size(); ++k) {
      table.push_back(static_cast<float>(rate_factor * training["learning_rate"].get<double>()));
      for (float x : run.optimizer.scalars(k)) table.push_back(x);
    }
    run.executor.upload(run.plan.table, table.data());
    double worst = 0.0;
    for (size_t k = 0; k < losses.size(); ++k) {
      const double loss = run.step("train.", k);
      float norm = 0;
      run.executor.download(&norm, run.plan.scalars, ENG_S_NORM * sizeof(float), sizeof norm);
      worst = std::max({worst, std::abs(loss / losses[k] - 1.0), std::abs(static_cast<double>(norm) / norms[k] - 1.0)});
    }
    return worst;
  };
  INFO(device);
  CHECK(deviation(1.0) < 1e-4);
  CHECK(deviation(1.01) > 1e-4);
}
