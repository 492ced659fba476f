// SPDX-License-Identifier: Apache-2.0
// Falcon-Mamba and the hybrids of plugins/mamba against transformers (tools/goldens/hybrids.py): logits, losses,
// gradients, updates, and the directories that transformers wrote.
#include <catch2/catch.hpp>
#include <set>

#include "family_checks.hpp"

namespace hybrids_test {

using namespace models;

namespace {

const fs::path directories = models::goldens.parent_path() / "hf_hybrids";
const std::vector<Variant> variants = {{"falcon_mamba", "plain"},
                                       {"falcon_mamba", "bias"},
                                       {"bamba", "plain"},
                                       {"bamba", "bias"},
                                       {"granitemoehybrid", "plain"},
                                       {"granitemoehybrid", "rope"},
                                       {"granitemoehybrid", "experts"},
                                       {"granitemoehybrid", "rope_experts"},
                                       {"granitemoehybrid", "one_expert"},
                                       {"nemotron_h", "plain"},
                                       {"nemotron_h", "bias"},
                                       {"nemotron_h", "experts"},
                                       {"nemotron_h", "latent"},
                                       {"nemotron_h", "all_experts"},
                                       {"falcon_h1", "plain"},
                                       {"falcon_h1", "norm"},
                                       {"falcon_h1", "gated"},
                                       {"jamba", "plain"},
                                       {"jamba", "bias"},
                                       {"jamba", "dense"}};

eng::Config config_of(const std::string& family, const std::string& options) {
  return eng::Config::parse("[data]\nplugin = 'text'\npaths = ['none']\n[model]\nplugin = '" + family + "'\n" +
                                options + "[train]\nmicro_batch = 1\nsteps = 1\nsequence_length = 8\n",
                            "test.toml", ".", {}, schemas_of(models::registry()));
}

eng::Model model_of(const std::string& family, const std::string& options, int32_t dtype = ENG_F32) {
  const eng::Config config = config_of(family, options);
  const auto table = models::registry().table<eng_model>(ENG_MODEL_KIND, family);
  eng::load_ops(models::registry());
  return eng::trace_model(family, table, config.section("model"), 1, 8, dtype);
}

}  // namespace

TEST_CASE("hybrids: presets have the parameter counts of transformers") {
  const std::map<std::string, int64_t> counts = {
      {"falcon-mamba-7b", 7272665088},         {"bamba-9b", 9780235392},    {"granite-4.0-h-tiny", 6939037248},
      {"granite-4.0-h-small", 32207337984},    {"jamba-v0.1", 51570323328}, {"nemotron-h-8b", 8100852736},
      {"nemotron-3-nano-30b-a3b", 31577940288}};
  std::set<std::string> seen;
  for (const char* family : {"falcon_mamba", "bamba", "granitemoehybrid", "nemotron_h", "falcon_h1", "jamba"})
    for (const auto& [preset, values] : models::registry().find(ENG_MODEL_KIND, family)->schema.presets) {
      INFO(family << " " << preset);
      const int64_t count = model_of(family, "preset = '" + preset + "'\n").parameter_count();
      if (preset == "tiny") {
        CHECK(count < 1300000);
        continue;
      }
      REQUIRE(counts.count(preset) == 1);
      CHECK(count == counts.at(preset));
      seen.insert(preset);
    }
  CHECK(seen.size() == counts.size());
}

TEST_CASE("hybrids: logits, loss and every gradient are those of transformers") {
  check_goldens(variants);
}

TEST_CASE("hybrids: updates of AdamW follow torch, no decay on vectors") {
  check_updates(variants);
}

TEST_CASE("hybrids: another constant is seen") {
  check_faults({{"falcon_mamba", "plain", "mixer_rms_eps", 1e-3},
                {"falcon_mamba", "bias", "layer_norm_epsilon", 1e-2},
                {"bamba", "bias", "rope_theta", 50.0},
                {"bamba", "bias", "time_step_limit", {0.2, 1.4}},
                {"bamba", "bias", "rms_norm_eps", 1e-2},
                {"granitemoehybrid", "plain", "position_embedding_type", "rope"},
                {"granitemoehybrid", "rope", "position_embedding_type", "nope"},
                {"granitemoehybrid", "plain", "embedding_multiplier", 6.1},
                {"granitemoehybrid", "plain", "attention_multiplier", 0.31},
                {"granitemoehybrid", "plain", "residual_multiplier", 0.41},
                {"granitemoehybrid", "plain", "logits_scaling", 2.6},
                {"nemotron_h", "plain", "layer_norm_epsilon", 1e-2},
                {"nemotron_h", "bias", "time_step_min", 0.4},
                {"granitemoehybrid", "experts", "num_experts_per_tok", 3},
                {"granitemoehybrid", "experts", "router_aux_loss_coef", 0.25},
                {"granitemoehybrid", "experts", "router_z_loss_coef", 0.06},
                {"granitemoehybrid", "experts", "residual_multiplier", 0.41},
                {"nemotron_h", "experts", "norm_topk_prob", false},
                {"nemotron_h", "experts", "routed_scaling_factor", 2.4},
                {"nemotron_h", "latent", "topk_group", 3},
                {"granitemoehybrid", "rope_experts", "num_experts_per_tok", 2},
                {"granitemoehybrid", "rope_experts", "rope_theta", 50.0},
                {"granitemoehybrid", "one_expert", "router_z_loss_coef", 0.11},
                {"nemotron_h", "all_experts", "num_experts_per_tok", 2},
                {"jamba", "plain", "router_aux_loss_coef", 0.25},
                {"jamba", "plain", "router_z_loss_coef", 0.06},
                {"jamba", "plain", "num_experts_per_tok", 3},
                {"jamba", "bias", "rms_norm_eps", 1e-2},
                {"falcon_h1", "plain", "embedding_multiplier", 3.1},
                {"falcon_h1", "plain", "lm_head_multiplier", 0.71},
                {"falcon_h1", "plain", "key_multiplier", 1.4},
                {"falcon_h1", "plain", "attention_in_multiplier", 0.81},
                {"falcon_h1", "plain", "attention_out_multiplier", 1.21},
                {"falcon_h1", "plain", "ssm_in_multiplier", 1.11},
                {"falcon_h1", "plain", "ssm_out_multiplier", 0.61},
                {"falcon_h1", "plain", "ssm_multipliers", {0.51, 1.5, 0.8, 1.2, 0.9}},
                {"falcon_h1", "plain", "ssm_multipliers", {0.5, 1.5, 0.8, 1.2, 0.91}},
                {"falcon_h1", "plain", "mlp_multipliers", {1.41, 0.6}},
                {"falcon_h1", "plain", "mlp_multipliers", {1.4, 0.61}},
                {"falcon_h1", "norm", "mamba_norm_before_gate", false},
                {"falcon_h1", "gated", "rms_norm_eps", 1e-2}});
}

TEST_CASE("hybrids: the correction of a router is seen, and training leaves it alone") {
  for (const char* variant : {"experts", "latent"}) {
    Golden golden = read_golden(variant, "nemotron_h");
    const int64_t layer = variant == std::string("latent") ? 0 : 1;
    const std::string name = "backbone.layers." + std::to_string(layer) + ".mixer.gate.e_score_correction_bias";
    const Run run(golden, devices[0]);
    const auto& params = run.setup.model.params;
    const auto found = std::find_if(params.begin(), params.end(), [&](const auto& p) { return p.name == name; });
    REQUIRE(found != params.end());
    CHECK((found->flags & ENG_PARAM_FROZEN) != 0);
    golden.tensors.at("param." + name).data[0] += 1.0;
    INFO(variant);
    CHECK(error_of(golden) > limit);
  }
}

TEST_CASE("hybrids: sizes and patterns that cannot be are refused with the key and what to change") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"falcon_mamba", "mixer_rms_eps = 0.0\n", "mixer_rms_eps must be above 0"},
      {"bamba", "attn_layer_indices = [5]\n",
       "attn_layer_indices holds 5; every number must be that of a layer, 0 to 4"},
      {"bamba", "attn_layer_indices = [0.5]\n", "attn_layer_indices holds 0.5"},
      {"bamba", "attn_rotary_emb = 32\n", "attn_rotary_emb is 32; half of each head is turned, that is 16 channels"},
      {"bamba", "mamba_d_head = 16\n", "mamba_n_heads x mamba_d_head is 128, and mamba_expand x hidden_size is 256"},
      {"bamba", "mamba_n_groups = 3\n", "mamba_n_heads is 8; it must be a multiple of mamba_n_groups, 3"},
      {"granitemoehybrid", "layer_types = ['mamba']\n", "layer_types has 1 entries, and there are 5 layers"},
      {"granitemoehybrid", "layer_types = ['mamba', 'mamba', 'moe', 'mamba', 'mamba']\n", "layer_types holds 'moe'"},
      {"granitemoehybrid", "time_step_limit = [1.0, 0.5]\n", "time_step_limit is 1 to 0.5; give two numbers from 0 on"},
      {"granitemoehybrid", "num_local_experts = 4\nnum_experts_per_tok = 5\n",
       "num_experts_per_tok (5) must not be above num_local_experts (4)"},
      {"nemotron_h", "hybrid_override_pattern = 'ME'\nn_group = 3\n",
       "n_group is 3, and there are 8 experts (n_routed_experts)"},
      {"nemotron_h", "hybrid_override_pattern = 'ME'\nn_group = 4\nnum_experts_per_tok = 3\n",
       "topk_group is 1 of 4 groups (n_group) of 2 experts, of which num_experts_per_tok asks for 3"},
      {"jamba", "attn_layer_offset = 4\n", "attn_layer_offset is 4; it must be below attn_layer_period, 4"},
      {"jamba", "expert_layer_offset = 2\n", "expert_layer_offset is 2; it must be below expert_layer_period, 2"},
      {"jamba", "num_experts_per_tok = 5\n", "num_experts_per_tok (5) must not be above num_experts (4)"},
      {"nemotron_h", "hybrid_override_pattern = 'MX'\n", "hybrid_override_pattern holds 'X'"},
      {"nemotron_h", "layers_block_type = ['mamba']\n",
       "hybrid_override_pattern and layers_block_type name other layers"},
      {"nemotron_h", "layers_block_type = ['experts']\n", "layers_block_type holds 'experts'"},
      {"nemotron_h", "num_hidden_layers = 3\n", "num_hidden_layers is 3, and the pattern has 7 layers"},
      {"nemotron_h", "time_step_limit = [0.1, 1.0]\n", "time_step_min is the only limit here"},
      {"falcon_h1", "mamba_d_ssm = 130\nmamba_d_head = 32\n",
       "mamba_n_heads x mamba_d_head is 128, and mamba_d_ssm is 130"},
      {"falcon_h1", "ssm_multipliers = [1.0]\n", "ssm_multipliers has 1 numbers; give 5"},
      {"falcon_h1", "mamba_rms_norm = true\nmamba_n_groups = 2\n",
       "a norm of groups before the gate is not supported"}};
  for (const auto& [family, options, told] : cases) {
    INFO(family << " " << options);
    CHECK_THAT(eng::test::refusal(eng::Exit::usage,
                                  [&, f = family, o = options] { model_of(f, "preset = 'tiny'\n" + std::string(o)); }),
               Catch::Contains(told));
  }
  CHECK_THAT(eng::test::refusal(eng::Exit::usage, [] { model_of("nemotron_h", ""); }),
             Catch::Contains("hybrid_override_pattern is missing"));
}

TEST_CASE("hybrids: the residual stream has the type that residual_in_fp32 asks for") {
  for (const char* family : {"mamba", "mamba2", "falcon_mamba", "nemotron_h"})
    for (const bool wide : {false, true}) {
      const eng::Model model = model_of(
          family, std::string("preset = 'tiny'\nresidual_in_fp32 = ") + (wide ? "true" : "false") + "\n", ENG_BF16);
      INFO(family << " " << wide);
      for (const uint32_t tmpl : {0u, 1u}) {
        const eng::Template& t = model.templates.at(tmpl);
        CHECK(t.graph.value(t.outputs.at(0)).desc.dtype == (wide ? ENG_F32 : ENG_BF16));
      }
    }
}

TEST_CASE("hybrids: directories of transformers give its losses", "[from]") {
  check_directories(directories, 9,
                    {{"nemotron_h_pattern", "nemotron_h"},
                     {"nemotron_h_experts", "nemotron_h"},
                     {"granitemoehybrid_experts", "granitemoehybrid"}});
}

TEST_CASE("hybrids: keys of config.json that change the mathematics are refused", "[from]") {
  check_refused_keys(
      directories,
      {{"falcon_mamba", "\"vocab_size\"", "\"rms_norm\": false, \"vocab_size\"", "`rms_norm` is not known here"},
       {"falcon_mamba", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\"", "`hidden_act` must be one of"},
       {"bamba", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.25",
        "`rope_parameters.partial_rotary_factor` is 0.25"},
       {"bamba", "\"z_loss_coefficient\": 0.0", "\"z_loss_coefficient\": 0.1", "`z_loss_coefficient` is 0.1"},
       {"bamba", "\"vocab_size\"", "\"num_local_experts\": 4, \"vocab_size\"", "`num_local_experts` is 4: experts"},
       {"granitemoehybrid_experts", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 0",
        "`num_experts_per_tok` must be"},
       {"granitemoehybrid", "\"vocab_size\"", "\"router_bias\": true, \"vocab_size\"",
        "`router_bias` is not known here"},
       {"nemotron_h_experts", "\"n_group\": 1", "\"n_group\": 0", "`n_group` must be"},
       {"granitemoehybrid", "\"position_embedding_type\": null", "\"position_embedding_type\": \"alibi\"",
        "`position_embedding_type` must be one of"},
       {"nemotron_h", "\"mlp_hidden_act\": \"relu2\"", "\"mlp_hidden_act\": \"silu\"", "`mlp_hidden_act` is \"silu\""},
       {"nemotron_h", "\"num_nextn_predict_layers\": 0", "\"num_nextn_predict_layers\": 1",
        "`num_nextn_predict_layers` is 1"},
       {"nemotron_h", "\"attention_bias\": false", "\"attention_bias\": true", "`attention_bias` is true"},
       {"nemotron_h", "\"vocab_size\"", "\"qk_norm\": true, \"vocab_size\"", "`qk_norm` is true"},
       {"jamba", "\"vocab_size\"", "\"mamba_inner_layernorms\": false, \"vocab_size\"",
        "`mamba_inner_layernorms` is false"},
       {"jamba", "\"vocab_size\"", "\"sliding_window\": 8, \"vocab_size\"", "`sliding_window`"},
       {"jamba", "\"vocab_size\"", "\"rope_theta\": 100.0, \"vocab_size\"", "`rope_theta`"},
       {"jamba", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "`hidden_act` must be one of"},
       {"falcon_h1", "\"vocab_size\"", "\"residual_multiplier\": 0.5, \"vocab_size\"",
        "`residual_multiplier` is 0.5"}});
}

}  // namespace hybrids_test
