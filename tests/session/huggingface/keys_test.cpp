// SPDX-License-Identifier: Apache-2.0
// Every key of config.json is read, harmless, or refused where it would change the model: walked by family.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/model.h"
#include "session/config/schemas.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/config_keys.hpp"
#include "session/plugins/pretrained.hpp"
#include "session/plugins/search.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace keys_test {

using namespace eng;
using Catch::Contains;

namespace {

Registry& models() {
  static const auto all = [] {
    PluginSearch search;
    for (const char* file : {"llama/llama", "decoders/decoders", "moe/moe", "opt/opt", "mamba/hybrids", "mamba/mamba"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return find_plugins(search);
  }();
  return *all;
}

const Json& goldens() {
  static const Json all =
      Json::parse(eng::test::read_file(std::string(ENGINE_SOURCE_DIR) + "/tests/session/huggingface/config_keys.json"));
  return all;
}

ModelSource source(const Json& json, const std::string& plugin = "") {
  return model_of_config_json(json, "config.json", plugin, schemas_of(models()));
}

std::string refused_of(const Json& json) {
  return test::refusal(Exit::usage, [&] { source(json); });
}
std::string refused(const std::string& text) {
  return refused_of(Json::parse(text));
}

// A small model of the family, to which a key is added.
Json small(const std::string& family) {
  return Json::object({{"model_type", Json(family)}});
}
Json with(const std::string& family, const std::string& key, const Json& value) {
  Json out = small(family);
  out[key] = value;
  return out;
}

const PluginSchema& schema(const std::string& family) {
  const bool twin = family == "mistral" || family == "ministral" || family == "internlm3";
  return models().find(ENG_MODEL_KIND, twin ? "llama" : family)->schema;
}

// True if a plugin describes the key, or one inside of it.
bool described(const std::string& family, const std::string& key) {
  const auto is = [&](const std::string& path) { return path == key || path.starts_with(key + "."); };
  const PluginSchema& s = schema(family);
  for (const Option& option : s.options)
    if (std::any_of(option.json.begin(), option.json.end(), is) || is(option.json_multiple)) return true;
  for (const auto& [path, values] : s.pretrained->fixed)
    if (is(path)) return true;
  return std::any_of(s.pretrained->ignore.begin(), s.pretrained->ignore.end(), is);
}

bool is_neutral(const std::string& key) {
  return std::any_of(neutral_keys().begin(), neutral_keys().end(),
                     [&](const NeutralKey& one) { return key == one.path; });
}

const std::vector<std::string> families = {
    "llama",        "mistral",          "ministral", "internlm3", "qwen2", "qwen3", "olmo2",
    "phi3",         "smollm3",          "granite",   "gpt_neox",  "opt",   "gpt2",  "mamba",
    "mamba2",       "mixtral",          "qwen2_moe", "qwen3_moe", "olmoe", "bamba", "falcon_h1",
    "falcon_mamba", "granitemoehybrid", "jamba",     "nemotron_h"};

}  // namespace

TEST_CASE("config.json: heads of keys are always written for Qwen, of which transformers would take 32") {
  for (const char* family : {"qwen2", "qwen3"})
    for (const int64_t given : {0, 2}) {
      Json config = with(family, "num_attention_heads", 4);
      if (given) config["num_key_value_heads"] = given;
      const Section model("model", source(config).settings);
      const Json written =
          write_config_json(model, schema(family).options, *schema(family).pretrained, "float32", Json::object());
      INFO(family << " " << given);
      CHECK(written.get("num_key_value_heads") == Json(given ? given : 4));
    }
}

TEST_CASE("config.json: every key that transformers writes is accounted for, with its value") {
  for (const std::string& family : families) {
    Json written = goldens().at("families").at(family);
    if (family == "mistral" || family == "ministral") {  // by default their window bites
      const auto own = source(written).settings;
      CHECK(own.at("plugin").value == Value(family));
      CHECK(own.at("sliding_window").value == Value(int64_t{4096}));
      written["max_position_embeddings"] = 4096;
    }
    INFO(family);
    const ModelSource read = source(written);
    for (const auto& [key, value] : written.members()) {
      INFO(key);
      const bool window = key == "sliding_window" || key == "layer_types";
      CHECK((described(family, key) || is_harmless(key) || is_neutral(key) || window));
      const Option* option = find_option(schema(family).options, key);
      if (!option || value.is_null()) continue;
      CHECK(option->json.front() == key);
      REQUIRE(read.settings.count(key));
      const Value& there = read.settings.at(key).value;
      if (const auto* number = std::get_if<double>(&there)) CHECK(Json(*number) == value);
      if (const auto* number = std::get_if<int64_t>(&there)) CHECK(Json(*number) == value);
      if (const auto* text = std::get_if<std::string>(&there)) CHECK(Json(*text) == value);
      if (const auto* flag = std::get_if<bool>(&there)) CHECK(Json(*flag) == value);
    }
  }
}

TEST_CASE("config.json: the defaults of a plugin are those of transformers") {
  for (const std::string& family : families)
    for (const auto& [key, value] : goldens().at("families").at(family).members()) {
      const Option* option = find_option(schema(family).options, key);
      // A file that has no more than its family; None has become a number in transformers' own.
      if (!option || option->fallback.index() == 0 || value.is_null()) continue;
      Json file = small(family);
      file["max_position_embeddings"] = 4096;
      if (!find_option(schema(family).options, "max_position_embeddings")) file.erase("max_position_embeddings");
      INFO(family << " " << key);
      const ModelSource read = source(file);
      const auto set = read.settings.find(key);
      const Value& there = set == read.settings.end() ? option->fallback : set->second.value;
      if (key == "max_position_embeddings" || key == "initializer_range") continue;  // above; of new models alone
      if (const auto* number = std::get_if<double>(&there)) CHECK(Json(*number) == value);
      if (const auto* number = std::get_if<int64_t>(&there)) CHECK(Json(*number) == value);
      if (const auto* text = std::get_if<std::string>(&there)) CHECK(Json(*text) == value);
      if (const auto* flag = std::get_if<bool>(&there)) CHECK(Json(*flag) == value);
    }
}

TEST_CASE("config.json: what is harmless is so with any value, and defaults of generation are") {
  for (const Json& key : goldens().at("generation").list()) CHECK(is_harmless(key.text()));
  for (const std::string& key : harmless_keys())
    for (const char* family : {"llama", "opt", "mamba"}) {
      if (key == "model_type" || key == "architectures") continue;
      INFO(family << " " << key);
      CHECK_FALSE(is_neutral(key));
      for (const Json& value : {Json(7), Json("x"), Json(true), Json::array({1}), Json::object({{"a", 1}})})
        CHECK(refused_of(with(family, key, value)) == "accepted");
    }
}

TEST_CASE("config.json: keys that change other models are refused unless they change nothing") {
  for (const NeutralKey& key : neutral_keys())
    for (const char* family : {"llama", "mistral", "opt", "mamba"}) {
      if (described(family, key.path)) continue;
      INFO(family << " " << key.path);
      Json file = with(family, key.path, Json(2.5));
      file["sliding_window"] = nullptr;
      CHECK_THAT(refused_of(file), Contains(fmt::format("`{}` is 2.5: ", key.path)) && Contains(key.what));
      for (const char* value : key.values) {
        file[key.path] = Json::parse(value);
        CHECK(refused_of(file) == "accepted");
      }
      file[key.path] = nullptr;
      CHECK(refused_of(file) == "accepted");
    }
}

TEST_CASE("config.json: a key that nobody knows is an error that names it") {
  for (const char* family : {"llama", "opt", "mamba"}) {
    CHECK_THAT(refused_of(with(family, "use_differential_attention", true)),
               Contains("`use_differential_attention` is not known here, and may change the model"));
    CHECK_THAT(refused_of(with(family, "temperature_of_scores", 0.5)),
               Contains("`temperature_of_scores` is not known"));
    CHECK_THAT(refused_of(with(family, "norm_type", "layernorm")), Contains("`norm_type`"));
    CHECK_THAT(refused_of(with(family, "mixer", Json::object({{"kind", "x"}}))), Contains("`mixer.kind`"));
    CHECK_THAT(refused_of(with(family, "rope_scaling.factor", 8.0)), Contains("`rope_scaling.factor` is not known"));
    CHECK(refused_of(with(family, "use_differential_attention", nullptr)) == "accepted");
    CHECK(refused_of(with(family, "unsloth_version", "2024.11")) == "accepted");
  }
  CHECK_THAT(refused(R"({"model_type": "llama", "rope_parameters": {"rope_theta": 1e4, "sections": [1, 2]}})"),
             Contains("`rope_parameters.sections`"));
  CHECK_THAT(refused(R"({"model_type": "mamba", "ssm_cfg": {"ngroups": 8}})"), Contains("`ssm_cfg.ngroups`"));
}

TEST_CASE("config.json: an object of another type is refused by name") {
  for (const char* value : {"[1]", "2.0", "\"linear\"", "true", "false", "0", "[]"}) {
    INFO(value);
    CHECK_THAT(refused(fmt::format(R"({{"model_type": "llama", "rope_scaling": {}}})", value)),
               Contains(fmt::format("`rope_scaling` is {}, not an object", value)));
    CHECK_THAT(refused(fmt::format(R"({{"model_type": "mamba", "ssm_cfg": {}}})", value)),
               Contains(fmt::format("`ssm_cfg` is {}, not an object", value)));
  }
  for (const char* value : {"null", "{}"})
    CHECK(refused(fmt::format(R"({{"model_type": "llama", "rope_scaling": {}}})", value)) == "accepted");
}

TEST_CASE("config.json: whole numbers may be written as 64.0") {
  const auto value = [](const std::string& text) {
    return source(Json::parse(R"({"model_type": "llama", "max_position_embeddings": )" + text + "}"))
        .settings.at("max_position_embeddings")
        .value;
  };
  for (const char* text : {"64", "64.0", "6.4e1", "64.000"}) CHECK(value(text) == Value(int64_t{64}));
  for (const char* text : {"64.5", "1e300", "-64.0", "\"64\"", "true", "[64]", "9007199254740994.0"})
    CHECK_THAT(refused(fmt::format(R"({{"model_type": "llama", "max_position_embeddings": {}}})", text)),
               Contains("`max_position_embeddings` must"));
  CHECK(
      source(Json::parse(R"({"vocab_size": 57.0, "d_model": 8, "n_layer": 1.0, "ssm_cfg": {}, "pad_vocab_size_multiple":
                              8.0})"))
          .settings.at("vocab_size")
          .value == Value(int64_t{64}));
}

TEST_CASE("config.json: a window that never bites is read, any other refused with the edit") {
  const auto file = [](const std::string& family, const std::string& more) {
    return "{\"model_type\": \"" + family + "\", \"max_position_embeddings\": 64" + more + "}";
  };
  for (const char* window : {"null", "64", "65", "64.0", "4096"}) {
    const std::string text = file("mistral", fmt::format(R"(, "sliding_window": {})", window));
    INFO(text);
    CHECK(refused(text) == "accepted");
    const auto notes = source(Json::parse(text)).notes;
    CHECK(notes.size() == (std::string(window) == "null" ? 1 : 2));
    CHECK_THAT(notes.front(), Contains("model_type `mistral` is read as `llama`, which computes the same"));
  }
  for (const char* window : {"63", "1", "32.0"})
    CHECK_THAT(refused(file("llama", fmt::format(R"(, "sliding_window": {})", window))),
               Contains("`sliding_window` is ") && Contains("set max_position_embeddings to "));
  for (const char* window : {"0", "-1", "\"64\"", "true", "63.5"}) {
    CHECK_THAT(refused(file("llama", fmt::format(R"(, "sliding_window": {})", window))), Contains("no length"));
    CHECK_THAT(refused(file("mistral", fmt::format(R"(, "sliding_window": {})", window))),
               Contains("`sliding_window` must be"));
  }
  CHECK_THAT(refused(file("llama", R"(, "layer_types": ["linear_attention"])")), Contains("`layer_types` is"));
}

TEST_CASE("config.json: a family with a window that bites is read by its own plugin") {
  const auto read = [](const std::string& family, const std::string& more) {
    return source(Json::parse("{\"model_type\": \"" + family + "\"" + more + "}"));
  };
  const auto plugin = [](const ModelSource& model) { return std::get<std::string>(model.settings.at("plugin").value); };
  const auto window = [](const ModelSource& model) { return model.settings.at("sliding_window").value; };
  for (const char* family : {"mistral", "ministral", "phi3"}) {
    const ModelSource model = read(family, R"(, "max_position_embeddings": 64, "sliding_window": 32.0)");
    INFO(family);
    CHECK(plugin(model) == family);
    CHECK(window(model) == Value(int64_t{32}));
    CHECK(model.notes.empty());
  }
  // The family's own default, also of other keys.
  const ModelSource usual = read("mistral", R"(, "max_position_embeddings": 8192)");
  CHECK(plugin(usual) == "mistral");
  CHECK(window(usual) == Value(int64_t{4096}));
  CHECK(usual.settings.at("num_key_value_heads").value == Value(int64_t{8}));
  // Mistral does not look at layer_types, Ministral does.
  const std::string two =
      R"(, "max_position_embeddings": 64, "num_hidden_layers": 2, "sliding_window": 8, "layer_types": )";
  CHECK(plugin(read("mistral", two + R"(["full_attention", "full_attention"])")) == "mistral");
  CHECK(plugin(read("ministral", two + R"(["full_attention", "full_attention"])")) == "llama");
  const ModelSource mixed = read("ministral", two + R"(["full_attention", "sliding_attention"])");
  CHECK(plugin(mixed) == "ministral");
  CHECK(mixed.settings.at("layer_types").value ==
        Value(std::vector<std::string>{"full_attention", "sliding_attention"}));
  CHECK_THAT(refused(R"({"model_type": "mistral", "max_position_embeddings": 8192, "attention_bias": true})"),
             Contains("`attention_bias` is true; this plugin supports false"));
}

TEST_CASE("config.json: null is another value than no key, where transformers has a default") {
  const auto read = [](const std::string& more) {
    return source(Json::parse(R"({"model_type": "gemma2")" + more + "}"));
  };
  const auto usual = read("").settings, none = read(R"(, "final_logit_softcapping": null)").settings;
  CHECK(usual.at("attn_logit_softcapping").value == Value(50.0));
  CHECK(usual.at("final_logit_softcapping").value == Value(30.0));
  CHECK(none.at("attn_logit_softcapping").value == Value(50.0));
  CHECK_FALSE(none.count("final_logit_softcapping"));
  // An export writes it back.
  const auto written = [](const std::string& plugin, const std::map<std::string, Setting>& settings) {
    const PluginSchema& s = models().find(ENG_MODEL_KIND, plugin)->schema;
    return write_config_json(Section("model", settings), s.options, *s.pretrained, "float32", Json::object());
  };
  const Json out = written("gemma2", none);
  CHECK((out.contains("final_logit_softcapping") && out.get("final_logit_softcapping").is_null()));
  CHECK(out.get("attn_logit_softcapping") == Json(50.0));
  const Json mistral = written(
      "mistral", source(Json::parse(R"({"model_type": "mistral", "sliding_window": null})"), "mistral").settings);
  CHECK((mistral.contains("sliding_window") && mistral.get("sliding_window").is_null()));
}

TEST_CASE("config.json: Qwen2's window has no effect unless it is switched on") {
  const std::string file = R"({"model_type": "qwen2", "max_position_embeddings": 64, "sliding_window": 8)";
  CHECK(refused(file + "}") == "accepted");
  const ModelSource read = source(Json::parse(file + R"(, "use_sliding_window": false, "max_window_layers": 1})"));
  CHECK(read.settings.at("plugin").value == Value(std::string("qwen2")));
  CHECK(read.notes.empty());
  CHECK_THAT(refused(file + R"(, "use_sliding_window": true})"),
             Contains("`use_sliding_window` is true; this plugin supports false"));
  CHECK(refused(file + R"(, "layer_types": ["full_attention"]})") == "accepted");
  CHECK_THAT(refused(file + R"(, "layer_types": ["full_attention", "sliding_attention"]})"),
             Contains("`layer_types` is"));
  CHECK_THAT(refused(file + R"(, "attention_bias": true})"), Contains("`attention_bias` is not known here"));
}

TEST_CASE("config.json: a family that computes the same is read with its own defaults") {
  const ModelSource read = source(Json::parse(
      R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "max_position_embeddings": 4096})"));
  CHECK(read.settings.at("plugin").value == Value(std::string("llama")));
  CHECK(read.settings.at("num_key_value_heads").value == Value(int64_t{8}));
  CHECK(read.settings.at("intermediate_size").value == Value(int64_t{14336}));
  CHECK_FALSE(source(Json::parse(R"({"model_type": "mistral", "num_key_value_heads": null, "sliding_window": null})"))
                  .settings.count("num_key_value_heads"));  // as many as heads
  CHECK_THAT(refused(R"({"model_type": "mistral", "sliding_window": null, "attention_bias": true})"),
             Contains("`attention_bias` is true; this plugin supports false"));
  CHECK_THAT(
      refused(
          R"({"model_type": "mistral", "sliding_window": null, "architectures": ["MistralForTokenClassification"]})"),
      Contains("`architectures` is"));
  CHECK(refused(R"({"model_type": "llama", "architectures": ["LLaMAForCausalLM"]})") == "accepted");
  CHECK_THAT(refused(R"({"model_type": "llama", "architectures": ["MistralForCausalLM"]})"),
             Contains("`architectures`"));
  for (const auto& [family, part] :
       {std::pair("gemma", "scaled embeddings"), {"granitemoe", "experts"}, {"olmo3", "windows of attention"}}) {
    std::string help;
    try {
      source(small(family));
    } catch (const Error& e) {
      help = e.help();
    }
    CHECK_THAT(help, Contains(part) && Contains("known: "));
  }
}

TEST_CASE("config.json: sets of keys that published models have are read") {
  const char* const files[] = {
      // the Mamba models of state-spaces, for transformers
      R"({"architectures": ["MambaForCausalLM"], "bos_token_id": 0, "conv_kernel": 4, "d_inner": 1536, "d_model": 768,
          "eos_token_id": 0, "expand": 2, "fused_add_norm": true, "hidden_act": "silu", "hidden_size": 768,
          "initializer_range": 0.1, "intermediate_size": 1536, "layer_norm_epsilon": 1e-05, "model_type": "mamba",
          "n_layer": 24, "num_hidden_layers": 24, "pad_token_id": 0, "pad_vocab_size_multiple": 8,
          "rescale_prenorm_residual": false, "residual_in_fp32": true, "rms_norm": true, "ssm_cfg": {}, "state_size": 16,
          "time_step_floor": 0.0001, "time_step_init_scheme": "random", "time_step_max": 0.1, "time_step_min": 0.001,
          "time_step_rank": 48, "time_step_scale": 1.0, "torch_dtype": "float32", "transformers_version": "4.39.0.dev0",
          "use_bias": false, "use_cache": true, "use_conv_bias": true, "vocab_size": 50280})",
      // the same of the package mamba_ssm
      R"({"d_model": 768, "d_intermediate": 0, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {"layer": "Mamba1"},
          "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": true, "residual_in_fp32": true, "fused_add_norm": true,
          "pad_vocab_size_multiple": 8, "tie_embeddings": true})",
      // LLaMA 1 as it was first converted
      R"({"architectures": ["LLaMAForCausalLM"], "bos_token_id": 0, "eos_token_id": 1, "hidden_act": "silu",
          "hidden_size": 4096, "intermediate_size": 11008, "initializer_range": 0.02, "max_sequence_length": 2048,
          "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "pad_token_id": -1,
          "rms_norm_eps": 1e-06, "torch_dtype": "float16", "transformers_version": "4.27.0.dev0", "use_cache": true,
          "vocab_size": 32000})",
      // a small LLaMA with keys of several tools
      R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
          "eos_token_id": 2, "head_dim": 64, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.04,
          "intermediate_size": 1536, "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
          "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
          "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
          "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "unsloth_fixed": true,
          "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.42.3",
          "use_cache": true, "vocab_size": 49152, "_attn_implementation_autoset": true})",
      R"({"_name_or_path": "opt-125m", "_remove_final_layer_norm": false, "activation_dropout": 0.0,
          "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2,
          "do_layer_norm_before": true, "dropout": 0.1, "enable_bias": true, "eos_token_id": 2, "ffn_dim": 3072,
          "hidden_size": 768, "init_std": 0.02, "layer_norm_elementwise_affine": true, "layerdrop": 0.0,
          "learned_embeddings": true, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12,
          "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "scale_embeddings": false,
          "torch_dtype": "float16", "transformers_version": "4.21.0.dev0", "use_cache": true, "vocab_size": 50272,
          "word_embed_proj_dim": 768})",
      R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
          "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
          "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024,
          "n_special": 0, "predict_special_tokens": true, "resid_pdrop": 0.1, "summary_activation": null,
          "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
          "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
          "vocab_size": 50257})",
      // one whose defaults of generation and of every key of the base class were saved
      R"({"model_type": "llama", "return_dict": true, "output_hidden_states": false, "output_attentions": false,
          "torchscript": false, "torch_dtype": null, "use_bfloat16": false, "tf_legacy_loss": false, "pruned_heads": {},
          "chunk_size_feed_forward": 0, "is_encoder_decoder": false, "is_decoder": false,
          "cross_attention_hidden_size": null, "add_cross_attention": false, "tie_encoder_decoder": false,
          "max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
          "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "typical_p": 1.0,
          "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
          "encoder_no_repeat_ngram_size": 0, "bad_words_ids": null, "num_return_sequences": 1, "output_scores": false,
          "return_dict_in_generate": false, "forced_bos_token_id": null, "forced_eos_token_id": null,
          "remove_invalid_values": false, "exponential_decay_length_penalty": null, "suppress_tokens": null,
          "begin_suppress_tokens": null, "finetuning_task": null, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
          "tokenizer_class": null, "prefix": null, "sep_token_id": null, "decoder_start_token_id": null,
          "task_specific_params": null, "problem_type": null})",
      R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
          "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
          "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
          "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.0", "use_cache": true,
          "vocab_size": 32768})",
      R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
          "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
          "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
          "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
          "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
          "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"};

  for (const char* file : files) CHECK(refused(file) == "accepted");
  CHECK(source(Json::parse(files[1])).settings.at("vocab_size").value == Value(int64_t{50280}));
}

}  // namespace keys_test
