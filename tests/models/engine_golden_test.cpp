// SPDX-License-Identifier: Apache-2.0
// The engine's losses, gradients and updates of tiny LLaMAs against Hugging Face transformers and torch.optim.AdamW.
#include "engine_run.hpp"

using namespace models;

TEST_CASE("loss and every gradient are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const char* variant : {"mha", "gqa", "head_dim", "tied", "bias", "linear", "dynamic", "yarn", "longrope_short",
                              "longrope_long", "llama3"}) {
    const Golden golden = models::read_golden(variant);
    Run run(golden, device);
    INFO(variant << " on " << device);
    CHECK(run.step() == Approx(golden.about["loss"].get<double>()).epsilon(1e-5));
    std::string worst;
    size_t seen = 0;
    const double error = run.gradient_error(worst, seen);
    INFO("worst: " << worst);
    CHECK(error < limit);
    CHECK(seen == run.setup.model.params.size());
    CHECK(run.gradient_error(worst, seen, 1.01) > limit);  // the same gradients, 1 % too large
  }
}

TEST_CASE("logits are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const char* variant : {"mha", "gqa", "head_dim", "tied", "bias", "linear", "dynamic", "yarn", "longrope_short",
                              "longrope_long", "llama3"}) {
    Golden golden = models::read_golden(variant);
    INFO(variant << " on " << device);
    CHECK(Run(golden, device).logits_error() < 1e-5);
    double& weight = golden.tensors.at("param.model.layers.0.self_attn.k_proj.weight").data[5];
    weight = -weight;
    CHECK(Run(golden, device).logits_error() > 1e-5);
  }
}

TEST_CASE("a wrong bias, epsilon or rotation is seen in the gradients") {
  const std::tuple<const char*, const char*, nlohmann::json> faults[] = {
      {"mha", "rope_theta", 10100.0}, {"tied", "rms_norm_eps", 1.1e-2}, {"bias", "hidden_act", "silu"}};
  for (const auto& [variant, key, value] : faults) {
    Golden golden = models::read_golden(variant);
    golden.about["options"][key] = value;
    Run run(golden, devices[0]);
    run.step();
    std::string worst;
    size_t seen = 0;
    INFO(variant << " with another " << key);
    CHECK(run.gradient_error(worst, seen) > limit);
  }
  Golden golden = models::read_golden("bias");
  for (double& b : golden.tensors.at("param.model.layers.1.self_attn.v_proj.bias").data) b = 0.0;
  Run run(golden, devices[0]);
  run.step();
  std::string worst;
  size_t seen = 0;
  CHECK(run.gradient_error(worst, seen) > limit);
}

TEST_CASE("twenty updates of AdamW follow torch, clipped and unclipped") {
  const std::string device = GENERATE(from_range(devices));
  const Golden golden = models::read_golden("gqa");
  INFO(device);
  CHECK(training_deviation(golden, device, 1.0) < limit);
  CHECK(training_deviation(golden, device, 1.01) > limit);
}
