// SPDX-License-Identifier: Apache-2.0
// The models against transformers (tools/goldens/moe.py): logits, losses, terms, gradients, updates, and directories
// that transformers wrote.
#include <catch2/catch.hpp>

#include "../models/engine_run.hpp"
#include "../models/from.hpp"

namespace moe_golden_test {

using namespace models;

namespace {

const fs::path directories = goldens.parent_path() / "hf_moe";
const std::pair<const char*, const char*> variants[] = {
    {"mixtral", "plain"},  {"mixtral", "one"}, {"mixtral", "window"}, {"qwen3_moe", "plain"}, {"qwen3_moe", "raw"},
    {"qwen3_moe", "bias"}, {"olmoe", "plain"}, {"olmoe", "all"},      {"olmoe", "normed"}};

// The values of the terms of the last step: cross-entropy, balance, z.
std::vector<float> terms(Run& run) {
  std::vector<float> out(static_cast<size_t>(eng::count(run.setup.plan.losses.desc)));
  run.executor.download(out.data(), run.setup.plan.losses);
  return out;
}

// The larger of the errors of logits and gradients.
double error_of(const Golden& golden) {
  Run run(golden, devices[0]);
  const double logits = run.logits_error();
  run.step();
  std::string worst;
  size_t seen = 0;
  return std::max(logits, run.gradient_error(worst, seen));
}

}  // namespace

TEST_CASE("moe: logits, loss, terms and every gradient are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const auto& [family, variant] : variants) {
    const Golden golden = read_golden(variant, family);
    Run run(golden, device);
    INFO(family << " " << variant << " on " << device);
    CHECK(run.logits_error() < limit / 10);
    CHECK(run.step() == Approx(golden.about["loss"].get<double>()).epsilon(1e-6));
    const std::vector<float> values = terms(run);
    const auto sequences = static_cast<double>(golden.at("tokens").dims[0]);
    REQUIRE(values.size() >= 3);
    CHECK(values[1] / sequences == Approx(golden.about["balance"].get<double>()).epsilon(1e-5));
    CHECK(values[2] / sequences == Approx(golden.about["z"].get<double>()).epsilon(1e-5));
    std::string worst;
    size_t seen = 0;
    const double error = run.gradient_error(worst, seen);
    INFO("worst: " << worst);
    CHECK(error < limit);
    CHECK(seen == run.setup.model.params.size());
    CHECK(run.gradient_error(worst, seen, 1.01) > limit);  // the same gradients, 1 % too large
  }
}

TEST_CASE("moe: updates of AdamW follow torch") {
  for (const char* family : {"mixtral", "qwen3_moe", "olmoe"}) {
    const Golden golden = read_golden("plain", family);
    INFO(family);
    CHECK(training_deviation(golden, devices[0], 1.0) < limit);
    CHECK(training_deviation(golden, devices[0], 1.01) > limit);
  }
}

TEST_CASE("moe: another option is seen") {
  const std::tuple<const char*, const char*, const char*, nlohmann::json> faults[] = {
      {"mixtral", "plain", "num_experts_per_tok", 1},
      {"mixtral", "plain", "router_aux_loss_coef", 0.25},
      {"mixtral", "plain", "output_router_logits", false},
      {"mixtral", "plain", "router_z_loss_coef", 0.06},
      {"mixtral", "window", "sliding_window", 6},
      {"qwen3_moe", "plain", "norm_topk_prob", false},
      {"qwen3_moe", "raw", "norm_topk_prob", true},
      {"qwen3_moe", "plain", "hidden_act", "gelu"},
      {"olmoe", "plain", "rms_norm_eps", 1e-2},
      {"olmoe", "normed", "router_z_loss_coef", 0.01}};
  for (const auto& [family, variant, key, value] : faults) {
    Golden golden = read_golden(variant, family);
    golden.about["options"][key] = value;
    INFO(family << " with another " << key);
    CHECK(error_of(golden) > limit);
  }
}

TEST_CASE("moe: directories of transformers give its losses", "[from]") {
  const auto expected = nlohmann::json::parse(std::ifstream(directories / "expected.json"));
  CHECK(expected.at("loss").size() == 3);
  for (const auto& [name, loss] : expected.at("loss").items()) {
    INFO(name);
    CHECK(config_from(directories / name).section("model").string("plugin") == name);
    CHECK(loss_of(directories / name) == Approx(loss.get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("moe: keys of config.json that change the mathematics are refused", "[from]") {
  const std::tuple<const char*, const char*, const char*, const char*> cases[] = {
      {"mixtral", "\"router_jitter_noise\": 0.0", "\"router_jitter_noise\": 0.1", "`router_jitter_noise` is 0.1"},
      {"mixtral", "\"vocab_size\"", "\"norm_topk_prob\": false, \"vocab_size\"", "`norm_topk_prob` is not known here"},
      {"qwen3_moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2", "`decoder_sparse_step` is 2"},
      {"qwen3_moe", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0]", "`mlp_only_layers` is"},
      {"qwen3_moe", "\"vocab_size\"", "\"shared_expert_intermediate_size\": 4, \"vocab_size\"",
       "`shared_expert_intermediate_size` is not known here"},
      {"olmoe", "\"clip_qkv\": null", "\"clip_qkv\": 8.0", "`clip_qkv` is 8.0"},
  };
  for (const auto& [name, from, to, told] : cases) {
    const eng::test::Scratch scratch;
    const fs::path copied = scratch / name;
    fs::copy(directories / name, copied);
    edit(copied / "config.json", from, to);
    INFO(name << " " << to);
    CHECK_THAT(eng::test::refusal(eng::Exit::usage, [&] { config_from(copied); }), Catch::Contains(told));
  }
}

TEST_CASE("moe: a low-rank path stands beside maps and routers, not beside stacked experts", "[from]") {
  const auto with = [](const std::string& target) {
    const eng::Config config = config_from(directories / "qwen3_moe",
                                           "[[transforms]]\nplugin = 'lora'\nrank = 2\ntargets = ['" + target + "']\n");
    return eng::make_setup(config, plugins());
  };
  const auto paths = [&](const std::string& target) {
    const eng::Setup setup = with(target);
    size_t n = 0;
    for (const eng::Tensor& t : setup.plan.tensors) n += t.name.ends_with("lora_A.weight") && t.role == "parameter";
    return n;
  };
  CHECK(paths("*.mlp.gate") == 2);
  CHECK(paths("all-linear") == 10);
  CHECK_THROWS_WITH(with("*.down_proj"), Catch::Contains("model.layers.0.mlp.experts.down_proj.weight is read by "
                                                         "eng.moe.linear/1: a low-rank path stands for the weight"));
}

}  // namespace moe_golden_test
