// SPDX-License-Identifier: Apache-2.0
// The models against transformers (tools/goldens/moe.py): logits, losses, terms, gradients, updates, and directories
// that transformers wrote.
#include <catch2/catch.hpp>

#include "../models/family_checks.hpp"

namespace moe_golden_test {

using namespace models;

namespace {

const fs::path directories = goldens.parent_path() / "hf_moe";
const std::vector<Variant> variants = {
    {"mixtral", "plain"},   {"mixtral", "one"},     {"mixtral", "window"}, {"qwen3_moe", "plain"}, {"qwen3_moe", "raw"},
    {"qwen3_moe", "bias"},  {"qwen3_moe", "dense"}, {"olmoe", "plain"},    {"olmoe", "all"},       {"olmoe", "normed"},
    {"qwen2_moe", "plain"}, {"qwen2_moe", "dense"}, {"qwen2_moe", "one"}};

// The values of the terms of the last step: cross-entropy, balance, z.
std::vector<float> terms(Run& run) {
  std::vector<float> out(static_cast<size_t>(eng::count(run.setup.plan.losses.desc)));
  run.executor.download(out.data(), run.setup.plan.losses);
  return out;
}

}  // namespace

TEST_CASE("moe: logits, loss, terms and every gradient are those of transformers") {
  const std::string device = GENERATE(from_range(devices));
  for (const auto& [family, variant] : variants) {
    const Golden golden = read_golden(variant, family);
    INFO(family << " " << variant << " on " << device);
    check_golden(golden, device, [&](Run& run) {
      const std::vector<float> values = terms(run);
      const auto sequences = static_cast<double>(golden.at("tokens").dims[0]);
      REQUIRE(values.size() >= 3);
      CHECK(values[1] / sequences == Approx(golden.about["balance"].get<double>()).epsilon(1e-5));
      CHECK(values[2] / sequences == Approx(golden.about["z"].get<double>()).epsilon(1e-5));
    });
  }
}

TEST_CASE("moe: updates of AdamW follow torch") {
  check_updates(variants);
}

TEST_CASE("moe: another option is seen") {
  check_faults({{"mixtral", "plain", "num_experts_per_tok", 1},
                {"mixtral", "plain", "router_aux_loss_coef", 0.25},
                {"mixtral", "plain", "output_router_logits", false},
                {"mixtral", "plain", "router_z_loss_coef", 0.06},
                {"mixtral", "window", "sliding_window", 6},
                {"qwen3_moe", "plain", "norm_topk_prob", false},
                {"qwen3_moe", "raw", "norm_topk_prob", true},
                {"qwen3_moe", "plain", "hidden_act", "gelu"},
                {"qwen3_moe", "dense", "router_aux_loss_coef", 0.25},
                {"qwen2_moe", "plain", "norm_topk_prob", true},
                {"qwen2_moe", "plain", "router_z_loss_coef", 0.06},
                {"qwen2_moe", "dense", "norm_topk_prob", false},
                {"qwen2_moe", "one", "hidden_act", "silu"},
                {"olmoe", "plain", "rms_norm_eps", 1e-2},
                {"olmoe", "normed", "router_z_loss_coef", 0.01}});
}

TEST_CASE("moe: the router of the expert of every token is seen") {
  Golden golden = read_golden("plain", "qwen2_moe");
  golden.tensors.at("param.model.layers.1.mlp.shared_expert_gate.weight").data[0] += 0.1;
  CHECK(error_of(golden) > limit);
}

TEST_CASE("moe: directories of transformers give its losses", "[from]") {
  check_directories(directories, 5, {{"qwen3_moe_dense", "qwen3_moe"}});
}

TEST_CASE("moe: keys of config.json that change the mathematics are refused", "[from]") {
  check_refused_keys(
      directories,
      {{"mixtral", "\"router_jitter_noise\": 0.0", "\"router_jitter_noise\": 0.1", "`router_jitter_noise` is 0.1"},
       {"mixtral", "\"vocab_size\"", "\"norm_topk_prob\": false, \"vocab_size\"", "`norm_topk_prob` is not known here"},
       {"qwen3_moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 0", "`decoder_sparse_step` must be"},
       {"qwen3_moe", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "`use_sliding_window` is true"},
       {"qwen3_moe", "\"vocab_size\"", "\"shared_expert_intermediate_size\": 4, \"vocab_size\"",
        "`shared_expert_intermediate_size` is not known here"},
       {"qwen2_moe", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "`use_sliding_window` is true"},
       {"qwen2_moe", "\"vocab_size\"", "\"attention_bias\": true, \"vocab_size\"",
        "`attention_bias` is not known here"},
       {"olmoe", "\"clip_qkv\": null", "\"clip_qkv\": 8.0", "`clip_qkv` is 8.0"}});
}

TEST_CASE("moe: a low-rank path stands beside maps, routers and stacked experts", "[from]") {
  const auto paths = [&](const std::string& target) {
    const eng::Config config = config_from(directories / "qwen3_moe",
                                           "[[transforms]]\nplugin = 'lora'\nrank = 2\ntargets = ['" + target + "']\n");
    const eng::Setup setup = eng::make_setup(config, plugins());
    std::vector<std::vector<int64_t>> out;
    for (const eng::Tensor& t : setup.plan.tensors)
      if (t.name.ends_with("lora_A.weight") && t.role == "parameter")
        out.emplace_back(t.desc.dims, t.desc.dims + t.desc.ndim);
    return out;
  };
  CHECK(paths("*.mlp.gate").size() == 2);
  CHECK(paths("all-linear").size() == 10);  // experts are named by themselves
  CHECK(paths("*.experts.down_proj") == std::vector<std::vector<int64_t>>(2, {12, 10}));  // six experts of rank 2
}

}  // namespace moe_golden_test
