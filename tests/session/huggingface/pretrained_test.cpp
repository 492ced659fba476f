// SPDX-License-Identifier: Apache-2.0
// config.json as a plugin's description maps it, and what may be wrong with one.
#include <catch2/catch.hpp>

#include "session/huggingface/config_json.hpp"
#include "session/plugins/pretrained.hpp"
#include "tests/config/support.hpp"

using namespace eng;
using Catch::Contains;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

Option option(const char* key, Type type, std::vector<std::string> json, Value fallback = {}) {
  Option out;
  out.key = key;
  out.type = type;
  out.fallback = std::move(fallback);
  out.json = std::move(json);
  return out;
}

// A model with two spellings of its file, one inside of another key.
const PluginSchema& snake() {
  static const PluginSchema made = [] {
    PluginSchema s;
    s.options = {option("width", Type::integer, {"hidden_size", "d_model"}),
                 option("state", Type::integer, {"state_size", "ssm_cfg.d_state"}, int64_t{16}),
                 option("rank", Type::integer, {"time_step_rank", "ssm_cfg.dt_rank"}),
                 option("eps", Type::number, {"layer_norm_epsilon"}, 1e-5),
                 option("factors", Type::numbers, {"rope.factors"}),
                 option("scale", Type::number, {"rope.scale"}, 1.0),
                 option("depth_scale", Type::boolean, {}, false)};
    s.options[0].min = 1;
    s.options[0].json_multiple = "pad";
    s.options[2].json_none = "auto";
    Pretrained p;
    p.model_types = {"snake", "viper"};
    p.architectures = {"SnakeForCausalLM"};
    p.recognise = {"ssm_cfg", "d_model"};
    p.fixed = {{"rms_norm", {"true"}}, {"attn_layer_idx", {"[]"}}, {"ssm_cfg.layer", {"\"Mamba1\"", "\"S6\""}}};
    p.write = {{"rms_norm", "true"}, {"nested.constant", "3"}, {"inner", R"({"product": ["eps", "width"]})"}};
    p.ignore = {"fused", "ssm_cfg.fast"};
    s.pretrained = std::make_shared<const Pretrained>(p);
    return s;
  }();
  return made;
}

const SchemaSource& source() {
  static const SchemaSource made = [] {
    SchemaSource s;
    static const PluginSchema deaf;
    s.find = [](const std::string&, const std::string& name) {
      return name == "snake" ? &snake() : name == "deaf" ? &deaf : nullptr;
    };
    s.names = [](const std::string&) { return std::vector<std::string>{"deaf", "snake"}; };
    return s;
  }();
  return made;
}

ModelSource read(const std::string& text, const std::string& plugin = "") {
  return model_of_config_json(parse_config_json(text, "config.json"), "config.json", plugin, source());
}

std::string refused(const std::string& text, const std::string& plugin = "") {
  try {
    read(text, plugin);
  } catch (const Error& e) {
    return e.exit() == Exit::usage ? e.what() : "wrong exit code";
  }
  return "accepted";
}

}  // namespace

TEST_CASE("config.json: spellings, nested keys, null and `auto`") {
  const ModelSource a = read(R"({"model_type": "snake", "hidden_size": 64, "time_step_rank": "auto", "state_size": null,
                                 "layer_norm_epsilon": 1, "rope": {"factors": [1, 2.5]}, "rms_norm": true})");
  CHECK(a.settings.at("plugin").value == Value(std::string("snake")));
  CHECK(a.settings.at("width").value == Value(int64_t{64}));
  CHECK(a.settings.at("width").given);
  CHECK(a.settings.at("eps").value == Value(1.0));
  CHECK(a.settings.at("factors").value == Value(std::vector<double>{1, 2.5}));
  for (const char* absent : {"rank", "state", "scale", "depth_scale"}) CHECK_FALSE(a.settings.count(absent));
  CHECK(a.notes.empty());
  CHECK(read(R"({"model_type": "viper", "hidden_size": 64})").settings.at("plugin").value ==
        Value(std::string("snake")));
  // Another file format of the same model, which names no type.
  const ModelSource b =
      read(R"({"d_model": 64, "ssm_cfg": {"d_state": 8, "dt_rank": 4, "layer": "S6", "fast": {"x": 1}},
                                 "fused": 0, "attn_layer_idx": []})");
  CHECK(b.settings.at("width").value == Value(int64_t{64}));
  CHECK(b.settings.at("state").value == Value(int64_t{8}));
  CHECK(b.settings.at("rank").value == Value(int64_t{4}));
  CHECK(b.notes.empty());
  CHECK(read(R"({"d_model": 64})", "snake").settings.count("width"));
  CHECK(read(R"({"d_model": 57, "pad": 8})", "snake").settings.at("width").value == Value(int64_t{64}));
  CHECK(read(R"({"d_model": 64, "pad": 8})", "snake").settings.at("width").value == Value(int64_t{64}));
  CHECK_THAT(refused(R"({"d_model": 64, "pad": 0})", "snake"), Contains("`pad` is not an integer from 1 to 1000000"));
}

TEST_CASE("config.json: unknown keys are an error that names them") {
  CHECK(
      refused(R"({"model_type": "snake", "hidden_size": 64, "tail": {"length": 3, "tip": {"x": 1}},
                    "ssm_cfg": {"fast": 1, "slow": 1}, "bos_token_id": 1, "nothing": null})") ==
      "config.json is not supported by plugin `snake`:\n  `ssm_cfg.slow` is not known here, and may change the model\n"
      "  `tail.length` is not known here, and may change the model\n"
      "  `tail.tip.x` is not known here, and may change the model");
}

TEST_CASE("config.json: everything that is not supported, at once") {
  const std::string text = refused(R"({"model_type": "snake", "hidden_size": 0, "d_model": 3, "layer_norm_epsilon": "x",
      "rope": {"factors": [1, "a"], "scale": 1e999}, "rms_norm": false, "attn_layer_idx": [1],
      "ssm_cfg": {"layer": "Mamba2"}, "architectures": ["SnakeForPets"], "quantization_config": {"bits": 4}})");
  CHECK_THAT(refused(R"({"model_type": "snake", "rope": {"scale": 1e999}})"), Contains("is not valid JSON"));
  CHECK_THAT(text, Contains("is not valid JSON"));
  const std::string all = refused(R"({"model_type": "snake", "hidden_size": 0, "d_model": 3, "layer_norm_epsilon": "x",
      "rope": {"factors": [1, "a"]}, "rms_norm": false, "attn_layer_idx": [1],
      "ssm_cfg": {"layer": "Mamba2"}, "architectures": ["SnakeForPets"], "quantization_config": {"bits": 4}})");
  for (const char* part : {"config.json is not supported by plugin `snake`", "`hidden_size` is 0, but `d_model` is 3",
                           "`hidden_size` must be at least 1", "`layer_norm_epsilon` must be of type number",
                           "`rope.factors` must be list of numbers", "`rms_norm` is false; this plugin supports true",
                           "`attn_layer_idx` is [1]; this plugin supports []", "`ssm_cfg.layer` is \"Mamba2\"",
                           "SnakeForPets", "quantised weights are not read"})
    CHECK_THAT(all, Contains(part));
}

TEST_CASE("config.json: the plugin is found, or the error says what is missing") {
  CHECK_THAT(refused(R"({"model_type": "cat"})"), Contains("model_type `cat` is not read by any model plugin"));
  CHECK_THAT(refused(R"({"model_type": "cat"})", "snake"), Contains("named `snake`"));
  try {
    read(R"({"model_type": "cat"})");
  } catch (const Error& e) {
    CHECK_THAT(e.help(), Contains("known: `snake` (plugin snake), `viper` (plugin snake)"));
  }
  CHECK_THAT(refused(R"({"model_type": "snake"})", "deaf"), Contains("plugin `deaf` does not say how"));
  CHECK_THAT(refused(R"({"hidden_size": 3})"), Contains("model_type is missing"));
}

TEST_CASE("config.json: hostile files are refused") {
  const std::string good = R"({"model_type": "snake", "hidden_size": 64})";
  CHECK(refused(good) == "accepted");
  for (size_t n = 0; n < good.size(); ++n) CHECK_THAT(refused(good.substr(0, n)), Contains("config.json"));
  CHECK_THAT(refused("[1]"), Contains("is not a JSON object"));
  CHECK_THAT(refused(R"({"model_type": 3})"), Contains("`model_type` is not a string"));
  CHECK_THAT(refused(R"({"model_type": "snake", "hidden_size": 1, "hidden_size": 2})"), Contains("appears twice"));
  CHECK_THAT(refused(R"({"model_type": "snake", "hidden_size": 18446744073709551615})"),
             Contains("`hidden_size` must"));
  CHECK_THAT(refused(R"({"model_type": "snake", "hidden_size": -9223372036854775808})"),
             Contains("must be at least 1"));
  CHECK_THAT(refused("{\"a\": " + std::string(1'000'000, '[')), Contains("nested too deeply"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  CHECK_THAT(refused(objects), Contains("nested too deeply"));
  CHECK_THAT(refused("{\"\xff\": 1}"), Contains("not valid JSON"));
  CHECK_THAT(refused(R"({"model_type": "snake", "": {"": 1}, "rope.scale": 2, "hidden_size": 1})"),
             Contains("`rope.scale` is not known here"));
  for (const char* text :
       {"", "{}", R"({"weight_map": {"a": "b.safetensors"}})", R"({"model_type": "snake", "rope": 3})"})
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text), std::string(text).size());
}

TEST_CASE("config.json: what is written reads back, with what was there for others") {
  const Section model("model", {{"width", {int64_t{64}, "x", true}},
                                {"state", {int64_t{16}, "default", false}},
                                {"rank", {{}, "default", false}},
                                {"eps", {0.1, "x", true}},
                                {"factors", {std::vector<double>{1, 2.5}, "x", true}},
                                {"scale", {1.0, "default", false}},
                                {"depth_scale", {true, "x", true}}});
  const Json before = Json::object({{"eos_token_id", Json::array({1, 2})},
                                    {"transformers_version", "4.0"},
                                    {"hidden_size", 3},
                                    {"fused", 1},
                                    {"tail", 3}});
  const Json json = write_config_json(model, snake().options, *snake().pretrained, "bfloat16", before);
  CHECK(json == Json::parse(R"({"architectures": ["SnakeForCausalLM"], "model_type": "snake", "torch_dtype": "bfloat16",
    "hidden_size": 64, "state_size": 16, "layer_norm_epsilon": 0.1, "rope": {"factors": [1.0, 2.5]}, "rms_norm": true,
    "nested": {"constant": 3}, "inner": 6, "eos_token_id": [1, 2], "fused": 1})"));
  const ModelSource back = read(json.dump());
  CHECK(back.settings.at("factors").value == Value(std::vector<double>{1, 2.5}));
  CHECK(back.settings.at("eps").value == Value(0.1));
}
