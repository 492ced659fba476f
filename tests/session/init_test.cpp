// SPDX-License-Identifier: Apache-2.0
// `engine init`: which model is meant, and a configuration that trains it.
#include <catch2/catch.hpp>

#include "session/config/init.hpp"
#include "tests/config/support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Preset sizes(int64_t vocabulary, int64_t width, int64_t positions = 0) {
  Preset out = {{"vocab_size", vocabulary}, {"hidden_size", width}};
  if (positions) out["max_position_embeddings"] = positions;
  return out;
}

const std::map<std::string, PluginSchema>& models() {
  static const auto all = [] {
    std::map<std::string, PluginSchema> made;
    made["llama"].presets = {{"7b", sizes(32000, 4096, 2048)},
                             {"tiny", sizes(256, 128, 2048)},
                             {"llama-3.2-1b", sizes(128256, 2048, 131072)}};
    made["mamba"].presets = {{"7b_mamba", sizes(50257, 4864)}, {"130m", sizes(50280, 768)}};
    made["opt"].presets = {
        {"tiny", sizes(256, 128, 128)}, {"125m", sizes(50272, 768, 512)}, {"7b", sizes(50272, 4096)}};
    for (auto& [name, schema] : made)
      for (const char* key : {"vocab_size", "hidden_size", "max_position_embeddings"}) {
        Option option;
        option.key = key;
        option.type = Type::integer;
        schema.options.push_back(option);
      }
    return made;
  }();
  return all;
}

SchemaSource init_source() {
  SchemaSource out = plugins();
  out.find = [](const std::string& kind, const std::string& name) -> const PluginSchema* {
    if (kind != "eng.model/1") return plugins().find(kind, name);
    return models().count(name) ? &models().at(name) : nullptr;
  };
  out.names = [](const std::string& kind) {
    std::vector<std::string> names;
    for (const auto& entry : models()) names.push_back(entry.first);
    return kind == "eng.model/1" ? names : plugins().names(kind);
  };
  return out;
}

std::string chosen(const std::vector<std::string>& words) {
  const ModelChoice choice = choose_model(init_source(), words);
  std::string out = choice.plugin + " " + choice.preset;
  for (const std::string& other : choice.others) out += " not " + other;
  return out;
}

std::string init_refusal(const std::vector<std::string>& words) {
  try {
    return "chose " + chosen(words);
  } catch (const Error& e) {
    CHECK(e.exit() == Exit::usage);
    return std::string(e.what()) + "\n" + e.help();
  }
}

}  // namespace

TEST_CASE("a model is found by all its usual names") {
  CHECK(chosen({"125m"}) == "opt 125m");
  CHECK(chosen({"7b"}) == "llama 7b not opt");
  CHECK(chosen({"7b_mamba"}) == "mamba 7b_mamba");
  CHECK(chosen({"llama"}) == "llama tiny");
  CHECK(chosen({"mamba"}) == "mamba 130m");  // the smallest
  for (const char* same : {"opt/125m", "opt-125m", "opt:125M", "OPT-125M", "facebook/opt-125m"})
    CHECK(chosen({same}) == "opt 125m");
  CHECK(chosen({"llama", "tiny"}) == "llama tiny");
  CHECK(chosen({"llama", "7B"}) == "llama 7b");
  CHECK(chosen({"llama-7b"}) == "llama 7b");
  CHECK(chosen({"llama-3.2-1b"}) == "llama llama-3.2-1b");
  CHECK(chosen({"llama/3.2-1b"}) == "llama llama-3.2-1b");
  CHECK_THAT(init_refusal({"tinny"}), Contains("no model plugin has a preset `tinny`\ndid you mean `tiny`?") &&
                                          Contains("\n  llama: 7b llama-3.2-1b tiny\n  mamba:"));
  CHECK_THAT(init_refusal({"opt", "66b"}), Contains("opt has no preset `opt 66b`"));
  CHECK_THAT(init_refusal({"llama/900b"}), Contains("llama has no preset `llama/900b`"));
  CHECK_THAT(init_refusal({"lama", "tiny"}), Contains("no model plugin has a preset `lama tiny`"));
  for (const char* odd : {"", "/", "llama/", "-", "opt-"})
    CHECK_THAT(init_refusal({odd}), Contains("available:\n  llama:"));
}

TEST_CASE("what init writes parses, evaluates what it holds out, and says what it needs") {
  for (const auto& [plugin, schema] : models())
    for (const auto& entry : schema.presets) {
      const Start start = start_config(schema, {plugin, entry.first, {}});
      INFO(start.text);
      const Config config = parse(start.text, {"data.tokenizer=bytes"}, init_source());
      CHECK_NOTHROW(config.require("data"));
      const Section &train = config.section("train"), &model = config.section("model");
      CHECK(model.string("plugin") == plugin);
      CHECK(config.section("data").number("validation") > 0);
      CHECK(train.integer("eval_every") > 0);
      CHECK(config.section("log").integer("every") > 1);
      if (model.has("max_position_embeddings"))
        CHECK(train.integer("sequence_length") <= model.integer("max_position_embeddings"));
      // Bytes have 256 ids.
      const bool tokenizer = model.integer("vocab_size") > 256;
      CHECK((start.text.find("\ntokenizer = ") != std::string::npos) == tokenizer);
      CHECK(start.needs.size() == (tokenizer ? 2u : 1u));
      if (model.integer("hidden_size") >= 2048) CHECK(train.integer("micro_batch") == 1);
    }
  const Start mamba = start_config(models().at("mamba"), {"mamba", "7b_mamba", {}});
  CHECK_THAT(mamba.text, Contains("sequence_length = 2048") && Contains("of ids below 50257"));
  CHECK_THAT(start_config(models().at("opt"), {"opt", "tiny", {}}).text, Contains("sequence_length = 128"));
}

TEST_CASE("a configuration for conversations follows the folder and the rows") {
  ChatStart from{"models/smol", {"a.jsonl", "b.jsonl"}};
  from.positions = 8192, from.width = 576, from.dtype = "bfloat16";
  from.bytes = 22'000, from.longest = 502;
  const std::string small = start_chat(from);
  INFO(small);
  CHECK_THAT(small, Contains("from = \"models/smol\"") && Contains("paths = [\"a.jsonl\", \"b.jsonl\"]") &&
                        Contains("plugin = \"chat\"") && Contains("plugin = \"bf16\"") &&
                        Contains("learning_rate = 1e-4 ") && Contains("sequence_length = 256 ") &&
                        Contains("accumulate = 1 ") && !Contains("[adapter]") && !Contains("chat_template"));
  // Long rows need long samples, as far as the model has positions; many rows make larger steps.
  from.longest = 3000, from.bytes = 400'000'000, from.width = 4096, from.dtype = "float32";
  CHECK_THAT(start_chat(from), Contains("sequence_length = 2048 ") && Contains("accumulate = 16 ") &&
                                   Contains("learning_rate = 2e-5 ") && Contains("plugin = \"fp32\"") &&
                                   Contains("warmup_steps = 100\n") && Contains("eval_every = 100 "));
  from.positions = 1000;
  CHECK_THAT(start_chat(from), Contains("sequence_length = 1000 ") && Contains("the model has 1000 positions"));
  from.positions = 0, from.longest = 0;  // neither is known
  CHECK_THAT(start_chat(from), Contains("sequence_length = 2048 "));
  from.adapter = true, from.chat_template = "t.jinja", from.bytes = 0;
  CHECK_THAT(start_chat(from), Contains("[adapter]\nplugin = \"lora\"") && Contains("learning_rate = 2e-4 ") &&
                                   Contains("chat_template = \"t.jinja\"") && Contains("# frozen = \"nf4\"") &&
                                   Contains("accumulate = 1 ") && Contains("warmup_steps = 1\n"));
}
