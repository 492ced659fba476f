// SPDX-License-Identifier: Apache-2.0
// The engine's logits, losses, gradients and updates of tiny OPTs against Hugging Face transformers and
// torch.optim.AdamW.
#include "engine_run.hpp"

using namespace models;

namespace {

const std::vector<std::string> opt_variants = {"pre", "post", "plain", "untied"};
constexpr double tight = 1e-5;

}  // namespace

TEST_CASE("opt: logits, loss and every gradient are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const std::string& variant : opt_variants) {
    const Golden golden = read_golden(variant, "opt");
    Run run(golden, device);
    INFO(variant << " on " << device);
    CHECK(run.logits_error() < tight);
    CHECK(run.step() == Approx(golden.about["loss"].get<double>()).epsilon(1e-6));
    std::string worst;
    size_t seen = 0;
    const double error = run.gradient_error(worst, seen);
    INFO("worst: " << worst);
    CHECK(error < tight);
    CHECK(seen == run.setup.model.params.size());
    CHECK(run.gradient_error(worst, seen, 1.01) > limit);  // the same gradients, 1 % too large
  }
}

TEST_CASE("opt: planted faults are seen") {
  const std::tuple<const char*, const char*, nlohmann::json> options[] = {{"pre", "activation_function", "silu"},
                                                                          {"plain", "activation_function", "gelu_new"},
                                                                          {"untied", "activation_function", "gelu"}};
  auto errors = [&](const Golden& golden) {
    Run run(golden, devices[0]);
    const double logits = run.logits_error();
    run.step();
    std::string worst;
    size_t seen = 0;
    return std::min(logits, run.gradient_error(worst, seen));
  };
  for (const auto& [variant, key, value] : options) {
    Golden golden = read_golden(variant, "opt");
    golden.about["options"][key] = value;
    INFO(variant << " with another " << key);
    CHECK(errors(golden) > tight);
  }
  for (const char* name : {"layers.1.self_attn.q_proj.bias", "layers.0.fc1.bias", "final_layer_norm.bias",
                           "layers.0.self_attn_layer_norm.bias"}) {
    Golden golden = read_golden("pre", "opt");
    for (double& b : golden.tensors.at(std::string("param.model.decoder.") + name).data) b = 0.0;
    INFO("without " << name);
    CHECK(errors(golden) > limit);
  }
  Golden golden = read_golden("post", "opt");
  auto& positions = golden.tensors.at("param.model.decoder.embed_positions.weight").data;
  std::rotate(positions.begin(), positions.begin() + 32, positions.end());  // one row
  CHECK(errors(golden) > limit);
  for (double& w : golden.tensors.at("param.model.decoder.project_in.weight").data) w *= 1.01;
  CHECK(errors(golden) > limit);
}

TEST_CASE("opt: a gradient that is dropped is seen") {
  const Golden golden = read_golden("pre", "opt");
  Run run(golden, devices[0]);
  run.step();
  std::string worst;
  size_t seen = 0;
  CHECK(run.gradient_error(worst, seen) < tight);
  for (const eng::Tensor& tensor : run.setup.plan.tensors)
    if (tensor.role == "gradient" && tensor.name == "model.decoder.layers.1.fc2.bias") {
      const std::vector<float> none(static_cast<size_t>(eng::count(tensor.desc)));
      run.executor.upload(tensor.whole(), none.data());
    }
  CHECK(run.gradient_error(worst, seen) == Approx(1.0));
  CHECK(worst == "model.decoder.layers.1.fc2.bias");
}

TEST_CASE("opt: twenty updates of AdamW follow torch, clipped and unclipped") {
  const std::string device = GENERATE(from_range(devices));
  const Golden golden = read_golden("pre", "opt");
  INFO(device);
  CHECK(training_deviation(golden, device, 1.0) < limit);
  CHECK(training_deviation(golden, device, 1.01) > limit);
}
