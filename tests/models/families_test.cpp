// SPDX-License-Identifier: Apache-2.0
// The models of plugins/decoders against transformers (tools/goldens/families.py): logits, losses, gradients, updates,
// and the directories that transformers wrote. What they share with llama is in llama_test.cpp.
#include <catch2/catch.hpp>

#include "engine/ops_attention.h"
#include "family_checks.hpp"
#include "model_host.hpp"

namespace families_test {

using namespace models;

namespace {

const fs::path directories = goldens.parent_path() / "hf_families";
const std::vector<Variant> variants = {
    {"qwen3", "plain"},     {"qwen3", "bias"},      {"olmo2", "plain"},    {"phi3", "plain"},    {"phi3", "partial"},
    {"smollm3", "plain"},   {"smollm3", "listed"},  {"granite", "plain"},  {"minicpm", "plain"}, {"gpt_neox", "plain"},
    {"gpt_neox", "serial"}, {"internlm2", "plain"}, {"internlm2", "bias"}, {"phi3", "window"},   {"mistral", "plain"},
    {"ministral", "plain"}, {"gemma3", "plain"},    {"gemma3", "linear"},  {"gemma2", "plain"},  {"gemma2", "scores"},
    {"gpt2", "plain"},      {"gpt2", "wide"}};

const PluginFile& decoders_plugin() {
  static const PluginFile plugin("decoders");
  return plugin;
}

int64_t elements(const std::string& family, const Values& options) {
  FakeBuild b;
  Hosted(decoders_plugin(), family, options).declare(b);
  int64_t total = 0;
  for (const Param& p : b.params) {
    int64_t n = 1;
    for (int64_t d : p.dims) n *= d;
    total += n;
  }
  return total;
}

std::string refused_options(const std::string& family, const Values& more) {
  Values options = decoders_plugin().preset(family, "tiny");
  for (const auto& [key, value] : more) options[key] = value;
  try {
    Hosted(decoders_plugin(), family, options);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("families: presets have the parameter counts of the published models") {
  const std::map<std::string, std::map<std::string, int64_t>> expected = {
      {"qwen3",
       {{"qwen3-0.6b", 596049920}, {"qwen3-1.7b", 1720574976}, {"qwen3-4b", 4022468096}, {"qwen3-8b", 8190735360}}},
      {"olmo2", {{"olmo2-1b", 1484916736}, {"olmo2-7b", 7298617344}}},
      {"phi3", {{"phi-3-mini", 3821079552}, {"phi-4", 14659507200}}},
      {"smollm3", {{"smollm3-3b", 3075098624}}},
      {"granite", {{"granite-3.1-2b", 2533531648}, {"granite-3.1-8b", 8170848256}}},
      {"gpt_neox",
       {{"pythia-70m", 70426624},
        {"pythia-160m", 162322944},
        {"pythia-410m", 405334016},
        {"pythia-1b", 1011781632},
        {"pythia-1.4b", 1414647808},
        {"pythia-2.8b", 2775208960},
        {"pythia-6.9b", 6857302016}}},
      {"gpt2", {{"small", 124439808}, {"medium", 354823168}, {"large", 774030080}, {"xl", 1557611200}}},
      {"minicpm", {{"minicpm-2b", 2724880896}}},
      {"internlm2", {{"internlm2-1.8b", 1889110016}, {"internlm2-7b", 7737708544}}},
      {"mistral", {{"mistral-7b", 7241732096}}},
      {"ministral", {{"ministral-8b", 8019808256}}},
      {"gemma2", {{"gemma-2-2b", 2614341888}, {"gemma-2-9b", 9241705984}, {"gemma-2-27b", 27227128320}}},
      {"gemma3", {{"gemma-3-270m", 268098176}, {"gemma-3-1b", 999885952}}}};
  for (const auto& [family, presets] : expected) {
    INFO(family);
    check_presets(presets, decoders_plugin().presets(family), 1200000,
                  [f = family](const std::string& name) { return elements(f, decoders_plugin().preset(f, name)); });
  }
}

TEST_CASE("families: logits, loss and every gradient are those of transformers") {
  check_goldens(variants);
}

TEST_CASE("families: updates of AdamW follow torch, clipped and unclipped") {
  check_updates(variants);
}

TEST_CASE("families: another constant is seen") {
  check_faults({{"qwen3", "plain", "rope_theta", 1e5},
                {"olmo2", "plain", "rms_norm_eps", 1e-2},
                {"phi3", "partial", "original_max_position_embeddings", 32},
                {"phi3", "partial", "rope_attention_factor", 1.0},
                {"smollm3", "plain", "no_rope_layer_interval", 3},
                {"smollm3", "listed", "no_rope_layers", {1, 0}},
                {"granite", "plain", "embedding_multiplier", 6.1},
                {"granite", "plain", "attention_multiplier", 0.31},
                {"granite", "plain", "residual_multiplier", 0.41},
                {"granite", "plain", "logits_scaling", 2.6},
                {"gpt_neox", "plain", "rotary_pct", 1.0},
                {"gpt_neox", "plain", "use_parallel_residual", false},
                {"gpt_neox", "serial", "layer_norm_eps", 1e-2},
                {"gpt2", "plain", "activation_function", "gelu"},
                {"gpt2", "plain", "scale_attn_weights", false},
                {"gpt2", "wide", "layer_norm_epsilon", 1e-2},
                {"minicpm", "plain", "scale_emb", 6.1},
                {"minicpm", "plain", "scale_depth", 0.71},
                {"minicpm", "plain", "dim_model_base", 7},
                {"internlm2", "plain", "rope_theta", 1e5},
                {"phi3", "window", "sliding_window", 6},
                {"mistral", "plain", "sliding_window", 4},
                {"ministral", "plain", "sliding_window", 4},
                {"ministral", "plain", "layer_types", {"sliding_attention", "full_attention"}},
                {"gemma3", "plain", "sliding_window", 6},
                {"gemma3", "plain", "sliding_window_pattern", 3},
                {"gemma3", "plain", "rope_theta", 9e4},
                {"gemma3", "plain", "rope_local_base_freq", 90.0},
                {"gemma3", "plain", "query_pre_attn_scalar", 8},
                {"gemma3", "plain", "hidden_activation", "gelu"},
                {"gemma3", "linear", "rope_factor", 3.0},
                {"gemma2", "plain", "attn_logit_softcapping", 1.6},
                {"gemma2", "plain", "final_logit_softcapping", 2.6},
                {"gemma2", "plain", "sliding_window", 6},
                {"gemma2", "scores", "final_logit_softcapping", 30.0},
                {"gemma2", "scores", "layer_types", {"sliding_attention", "full_attention"}}});
}

TEST_CASE("families: what a norm does is seen") {
  for (const char* family : {"qwen3", "olmo2", "gemma3"})
    for (const char* norm : {"q_norm", "k_norm"}) {
      Golden golden = read_golden("plain", family);
      for (double& w : golden.tensors.at("param.model.layers.1.self_attn." + std::string(norm) + ".weight").data) w = 1;
      INFO(family << " without the weights of " << norm);
      CHECK(error_of(golden) > limit);
    }
  for (const char* norm : {"input", "post_attention", "pre_feedforward", "post_feedforward"}) {
    Golden golden = read_golden("plain", "gemma3");
    for (double& w : golden.tensors.at("param.model.layers.1." + std::string(norm) + "_layernorm.weight").data) w = 0;
    INFO("without the weights of " << norm);
    CHECK(error_of(golden) > limit);
  }
}

TEST_CASE("families: a window that holds the whole sequence is none, a shorter one is less work") {
  for (const char* family : {"phi3", "mistral", "gemma3"}) {
    INFO(family);
    Golden golden = read_golden(family == std::string("phi3") ? "window" : "plain", family);
    const int64_t length = golden.at("tokens").dims[1];
    // The number of calls of attention in a window, in a plan of a training step.
    const auto calls = [&](int64_t window) {
      golden.about["options"]["sliding_window"] = window;
      const Run run(golden, devices[0]);
      int64_t found = 0;
      for (const eng::Call& call : run.setup.plan.calls) {
        const bool grad = call.op->id == std::string(ENG_OP_ATTENTION_WINDOW_GRAD);
        if (!grad && call.op->id != std::string(ENG_OP_ATTENTION_WINDOW)) continue;
        ++found;
        // Two products, or five, with each key that a query sees.
        const int64_t seen = window * (window + 1) / 2 + (length - window) * window;
        const auto width = static_cast<double>(eng::count(call.in[grad ? 1 : 0]) / length);
        CHECK(call.flops == Approx((grad ? 10.0 : 4.0) * width * static_cast<double>(seen)));
      }
      return found;
    };
    CHECK(calls(length) == 0);
    CHECK(calls(length - 1) >= 2);
    CHECK(calls(1) >= 2);
  }
}

TEST_CASE("families: options that fit no model are refused with the key and what to change") {
  CHECK_THAT(refused_options("smollm3", {{"no_rope_layers", std::vector<double>{1, 0, 1}}}),
             Catch::Contains("no_rope_layers has 3 numbers, and there are 4 layers (num_hidden_layers)"));
  CHECK_THAT(refused_options("smollm3", {{"no_rope_layers", std::vector<double>{1, 0, 1, 2}}}),
             Catch::Contains("no_rope_layers holds 2; every number must be 0 or 1"));
  CHECK(refused_options("smollm3", {{"no_rope_layers", std::vector<double>{1, 0, 1, 0, 0}}}) == "accepted");
  CHECK_THAT(refused_options("ministral", {{"layer_types", std::vector<std::string>{"full_attention"}}}),
             Catch::Contains("layer_types has 1 entries, and there are 5 layers (num_hidden_layers)"));
  CHECK_THAT(
      refused_options("gemma3", {{"layer_types", std::vector<std::string>(6, "linear_attention")}}),
      Catch::Contains("layer_types holds 'linear_attention'; every entry must be sliding_attention or full_attention"));
  CHECK_THAT(refused_options("gpt_neox", {{"rotary_pct", 0.1}}),
             Catch::Contains("a share of 0.1 of heads of 32 is 3 channels; rotary embedding needs an even number"));
  CHECK_THAT(
      refused_options("phi3", {{"rope_type", std::string("longrope")},
                               {"partial_rotary_factor", 0.75},
                               {"rope_short_factor", std::vector<double>(16, 1.0)},
                               {"rope_long_factor", std::vector<double>(16, 1.0)}}),
      Catch::Contains("rope_short_factor has 16 numbers; rope_type 'longrope' needs 12, half of the channels of a "
                      "head that are turned (24)"));
}

TEST_CASE("families: their directories give the losses of transformers", "[from]") {
  check_directories(directories, 16,
                    {{"mistral", "llama"},
                     {"ministral", "llama"},
                     {"internlm3", "llama"},
                     {"phi3_window", "phi3"},
                     {"mistral_window", "mistral"},
                     {"ministral_window", "ministral"}});
}

TEST_CASE("families: keys of config.json that change the mathematics are refused", "[from]") {
  check_refused_keys(
      directories,
      {{"qwen3", "\"use_sliding_window\": false", "\"use_sliding_window\": true", "`use_sliding_window` is true"},
       {"qwen3", "\"attention_dropout\": 0.0", "\"attention_dropout\": 0.1", "`attention_dropout` is 0.1"},
       {"qwen3", "\"vocab_size\"", "\"mlp_bias\": true, \"vocab_size\"", "`mlp_bias` is not known here"},
       {"olmo2", "\"vocab_size\"", "\"clip_qkv\": 8.0, \"vocab_size\"", "`clip_qkv` is 8.0: clipped queries"},
       {"olmo2", "\"vocab_size\"", "\"head_dim\": 8, \"vocab_size\"", "`head_dim` is not known here"},
       {"phi3", "\"sliding_window\": null", "\"sliding_window\": 0", "`sliding_window` must be"},
       {"phi3", "\"rope_type\": \"longrope\"", "\"rope_type\": \"yarn\"", "`rope_parameters.rope_type` must be one of"},
       {"phi3", "\"embd_pdrop\": 0.0", "\"embd_pdrop\": 0.1", "`embd_pdrop` is 0.1"},
       {"smollm3", "\"full_attention\"", "\"sliding_attention\"", "`layer_types` is"},
       {"granite", "\"vocab_size\"", "\"num_local_experts\": 4, \"vocab_size\"", "`num_local_experts` is 4: experts"},
       {"gpt_neox", "\"hidden_dropout\": 0.0", "\"hidden_dropout\": 0.1", "`hidden_dropout` is 0.1"},
       {"minicpm", "\"vocab_size\"", "\"sparse_config\": {\"topk\": 64}, \"vocab_size\"",
        "`sparse_config.topk` is not known"},
       {"internlm2", "\"vocab_size\"", "\"attention_bias\": true, \"vocab_size\"",
        "`attention_bias` is not known here"},
       {"internlm3", "\"vocab_size\"", "\"qkv_bias\": true, \"vocab_size\"",
        "`qkv_bias` is true: biases on q, k and v"},
       {"mistral_window", "\"vocab_size\"", "\"mlp_bias\": true, \"vocab_size\"", "`mlp_bias` is true"},
       {"gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
        "`use_bidirectional_attention` is true"},
       {"gemma3", "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0",
        "`attn_logit_softcapping` is 50.0"},
       {"gemma3", "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0",
        "`final_logit_softcapping` is 30.0"}});
}

}  // namespace families_test
