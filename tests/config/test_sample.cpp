// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "session/config/init.hpp"
#include "support.hpp"

using namespace eng;
using namespace eng::test;

namespace {

const char* const sample = R"([run]
name = "llama-tiny"            # out = "runs"

[model]
plugin = "llama"
preset = "tiny"

[data]
plugin = "text"
paths = ["docs/**/*.md"]
tokenizer = "bytes"
validation = 0.05

[train]
steps = 300
micro_batch = 8
accumulate = 1
reduce = "micro_batch"
sequence_length = 256
grad_clip = 1.0
seed = 1
eval_every = 100
eval_batches = 8

[optimizer]
plugin = "adamw"
learning_rate = 3e-4
beta1 = 0.9
beta2 = 0.95
eps = 1e-8
weight_decay = 0.1

[schedule]
kind = "cosine"
warmup_steps = 20
warmup = "linear"
min_learning_rate = 3e-5

[precision]
plugin = "fp32"

[checkpoint]
every = 100
keep = 3

[device]
plugin = "cpu"
threads = 0

[log]
every = 1
)";

void equal(const Config& a, const Config& b) {
  REQUIRE(a.sections().size() == b.sections().size());
  for (std::size_t i = 0; i < a.sections().size(); ++i) {
    const auto &left = a.sections()[i].settings(), &right = b.sections()[i].settings();
    REQUIRE(left.size() == right.size());
    for (const auto& [key, setting] : left) {
      INFO(a.sections()[i].name() << "." << key);
      REQUIRE(right.count(key) == 1);
      CHECK(right.at(key).value == setting.value);
      CHECK(right.at(key).given == setting.given);
    }
  }
}

}  // namespace

TEST_CASE("the design's sample configuration") {
  const Config config = parse(sample);
  CHECK(config.notes().empty());
  CHECK(config.section("run").string("name") == "llama-tiny");
  CHECK(config.section("run").string("out") == "runs");
  CHECK(config.section("train").integer("steps") == 300);
  CHECK(config.section("optimizer").number("learning_rate") == 3e-4);
  CHECK(config.section("model").integer("hidden_size") == 64);
  CHECK(config.section("model").settings().at("hidden_size").origin == "preset tiny");
  CHECK(config.section("model").settings().at("hidden_size").given);
  CHECK(config.section("train").settings().at("steps").origin == "opt.toml:15");
  CHECK(config.section("model").settings().at("kv_cache").origin == "default");
  CHECK(config.section("model").integer("kv_cache") == 67108864);
  CHECK(config.section("model").number("rms_norm_eps") == 1.0);
  CHECK(config.section("data").strings("paths") == std::vector<std::string>{"docs/**/*.md"});
  CHECK_FALSE(config.section("data").has("field"));
  CHECK(config.source() == sample);
  CHECK(config.base_dir() == "/");
}

TEST_CASE("a configuration needs only a model") {
  const Config config = parse("[model]\nplugin = \"llama\"\npreset = \"7b\"\nhidden_size = 128\n");
  CHECK(config.section("model").integer("hidden_size") == 128);
  CHECK(config.section("model").integer("num_hidden_layers") == 32);
  CHECK(config.section("optimizer").number("beta1") == 0.9);
  CHECK(config.section("run").string("name") == "opt");
  CHECK(config.sections().size() == section_schemas().size());
  CHECK_NOTHROW(config.require("optimizer"));
  CHECK_THROWS_WITH(config.require("data"), Catch::Contains("section [data] is missing") && Catch::Contains("paths"));
  CHECK_NOTHROW(parse(sample).require("data"));
  CHECK_THROWS_AS(config.section("tiers"), Error);
}

TEST_CASE("the resolved text is the same configuration") {
  for (const char* more : {"", "[train]\nglobal_batch = 32\nmicro_batch = 4\n",
                           "[run]\nname = \"x\"\n[data]\npaths = []\nfield = \"a \\\"b\\\"\\n\\t\\u0001 é\"\n",
                           "[schedule]\ncompatible = \"deepspeed\"\nkind = \"WarmupLR\"\n",
                           "[schedule]\ncompatible = \"deepspeed\"\nkind = \"WarmupDecayLR\"\ntotal_num_steps = 9\n",
                           "[optimizer]\nplugin = \"sgd\"\n", "[model]\nrope_factors = [1, 2.5, 1e-30]\n"}) {
    std::string text = "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n";
    if (std::string(more).find("[model]") == 0)
      text += std::string(more).substr(8);
    else
      text += more;
    const Config first = parse(text);
    INFO(resolved_text(first));
    const Config second = Config::parse(resolved_text(first), "config.resolved.toml", "/", {}, plugins());
    equal(first, second);
  }
  equal(parse(sample), Config::parse(resolved_text(parse(sample)), "r.toml", "/", {}, plugins()));
  // The twin: another value is seen.
  const Config other = parse(resolved_text(parse(sample)), {"train.steps=301"});
  CHECK(other.section("train").settings().at("steps").value !=
        parse(sample).section("train").settings().at("steps").value);
  CHECK_THAT(resolved_text(parse(sample)), Catch::Contains("# from: opt.toml:15") &&
                                               Catch::Contains("# from: preset tiny") &&
                                               Catch::Contains("# from: default"));
}

TEST_CASE("a resolved text can be changed by overrides") {
  const std::string text = resolved_text(parse(sample, {"train.accumulate=2"}));
  CHECK_THAT(text, Catch::Contains("# from: command line"));
  const Config sgd =
      parse(resolved_text(parse("[model]\nplugin = \"llama\"\npreset = \"tiny\"\n")), {"optimizer.plugin=sgd"});
  CHECK(sgd.section("optimizer").has("momentum"));
  CHECK(sgd.section("optimizer").settings().count("beta1") == 0);
  CHECK_THAT(problems("[resolved]\ndefault = []\n"), Catch::Contains("unknown section [resolved]"));
}

TEST_CASE("schema and template") {
  const std::string text = schema_text(plugins());
  for (const auto& section : section_schemas()) {
    CHECK_THAT(text, Catch::Contains("[" + section.name + "]"));
    for (const auto& option : section.options) CHECK_THAT(text, Catch::Contains("# " + option.key + " = "));
  }
  CHECK_THAT(text, Catch::Contains("with plugin = \"sgd\"") && Catch::Contains("preset \"7b\": hidden_size = 4096") &&
                       Catch::Contains("at least 1, at most 1000000000:") &&
                       Catch::Contains("at least 0, at most 0.5"));
  const std::string some = schema_text(plugins(), {"train", "sgd"});
  CHECK_THAT(some, Catch::Contains("steps") && Catch::Contains("momentum") && !Catch::Contains("beta1") &&
                       !Catch::Contains("[data]"));
  // The schema is TOML, though it holds nothing.
  CHECK_THAT(problems(text), !Catch::Contains("E0101"));
  const Config config = parse(start_config(*plugins().find("eng.model/1", "llama"), {"llama", "7b", {}}).text);
  CHECK(config.section("model").integer("num_hidden_layers") == 32);
  CHECK_NOTHROW(config.require("data"));
}
