// SPDX-License-Identifier: Apache-2.0
// Every key of config.json is read, harmless, or refused where it would change the model: walked by family.
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/model.h"
#include "session/config/schemas.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/config_keys.hpp"
#include "session/plugins/search.hpp"
#include "tests/session/checkpoint/scratch.hpp"

namespace keys_test {

using namespace eng;
using Catch::Contains;

namespace {

Registry& models() {
  static const auto all = [] {
    PluginSearch search;
    for (const char* name : {"llama", "opt", "mamba"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + name + "/" + name + ".eng.so");
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

ModelSource source(const Json& json) {
  return model_of_config_json(json, "config.json", "", schemas_of(models()));
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
  const bool llama = family != "opt" && family != "mamba";
  return models().find(ENG_MODEL_KIND, llama ? "llama" : family)->schema;
}

// Whether a plugin says what the key, or one inside of it, is.
bool described(const std::string& family, const std::string& key) {
  const auto is = [&](const std::string& path) { return path == key || path.starts_with(key + "."); };
  const PluginSchema& s = schema(family);
  for (const Option& option : s.options)
    if (std::any_of(option.json.begin(), option.json.end(), is) || is(option.json_multiple)) return true;
  for (const auto& [path, values] : s.pretrained.fixed)
    if (is(path)) return true;
  return std::any_of(s.pretrained.ignore.begin(), s.pretrained.ignore.end(), is);
}

bool is_neutral(const std::string& key) {
  return std::any_of(neutral_keys().begin(), neutral_keys().end(),
                     [&](const NeutralKey& one) { return key == one.path; });
}

const std::vector<std::string> families = {"llama", "mistral", "ministral", "opt", "mamba"};

}  // namespace

TEST_CASE("config.json: every key that transformers writes is accounted for, with its value") {
  for (const std::string& family : families) {
    Json written = goldens().at("families").at(family);
    if (family == "mistral" || family == "ministral") {  // by default their window bites
      CHECK_THAT(refused_of(written), Contains("`sliding_window` is 4096, below max_position_embeddings, 131072") &&
                                          Contains("set max_position_embeddings to 4096 in config.json"));
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
      if (family == "mamba") file.erase("max_position_embeddings");
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
    for (const char* family : {"mistral", "ministral", "llama"})
      CHECK_THAT(refused(file(family, fmt::format(R"(, "sliding_window": {})", window))),
                 Contains("`sliding_window` is ") && Contains("set max_position_embeddings to "));
  for (const char* window : {"0", "-1", "\"64\"", "true", "63.5"})
    CHECK_THAT(refused(file("mistral", fmt::format(R"(, "sliding_window": {})", window))), Contains("no length"));
  // The family's own default.
  CHECK_THAT(refused(R"({"model_type": "mistral", "max_position_embeddings": 8192})"),
             Contains("`sliding_window` is 4096"));
  CHECK(refused(file("ministral", R"(, "sliding_window": 8, "layer_types": ["full_attention", "full_attention"])")) ==
        "accepted");
  CHECK_THAT(refused(file("mistral", R"(, "sliding_window": 8, "layer_types": ["full_attention"])")),
             Contains("`sliding_window` is 8"));  // which does not look at layer_types
  CHECK_THAT(
      refused(file("ministral", R"(, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"])")),
      Contains("`sliding_window` is 8"));
  CHECK_THAT(refused(file("llama", R"(, "layer_types": ["linear_attention"])")), Contains("`layer_types` is"));
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
  for (const auto& [family, part] : {std::pair("qwen2", "biases on q, k and v alone"),
                                     {"gemma", "scaled embeddings"},
                                     {"mamba2", "another model than Mamba-1"},
                                     {"mixtral", "experts"},
                                     {"phi3", "in one matrix"}}) {
    std::string help;
    try {
      source(small(family));
    } catch (const Error& e) {
      help = e.help();
    }
    CHECK_THAT(help, Contains(part) && Contains("known: "));
  }
}

}  // namespace keys_test
