// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

TEST_CASE("overrides") {
  const Config config = parse(with("[train]\nsteps = 5\nseed = \"bad, but replaced\"\n"),
                              {"train.steps=10", "model.preset=7b", "data.paths=[\"b\", \"c\"]", "train.seed = 3",
                               "log.every=1", "log.every=2", "optimizer.learning_rate=1", "model.kv_cache=2GiB",
                               "run.name=2026", "run.out='a b'", "model.tie_word_embeddings=true", "data.field=true"});
  CHECK(config.section("train").integer("steps") == 10);
  CHECK(config.section("train").settings().at("steps").origin == "command line");
  CHECK(config.section("train").settings().at("steps").given);
  CHECK(config.section("model").integer("hidden_size") == 4096);
  CHECK(config.section("data").strings("paths") == std::vector<std::string>{"b", "c"});
  CHECK(config.section("train").integer("seed") == 3);
  CHECK(config.section("log").integer("every") == 2);
  CHECK(config.section("optimizer").number("learning_rate") == 1.0);
  CHECK(config.section("model").integer("kv_cache") == int64_t{2} << 30);
  CHECK(config.section("run").string("name") == "2026");
  CHECK(config.section("run").string("out") == "a b");
  CHECK(config.section("model").boolean("tie_word_embeddings"));
  CHECK(config.section("data").string("field") == "true");
  // A value may span lines; what it holds is still one value.
  CHECK(parse(with(""), {"data.paths=[\"b\",\n\"c\"]"}).section("data").strings("paths").size() == 2);
  CHECK(parse(with(""), {"data.field=a\ntrain.seed=2"}).section("data").string("field") == "a\ntrain.seed=2");
  // No file is needed for what is on the command line.
  CHECK(parse("", {"model.plugin=llama", "model.preset=tiny"}).section("model").integer("hidden_size") == 64);
}

TEST_CASE("bad overrides show their text") {
  const auto bad = [](const std::string& text, const std::string& part) {
    CHECK_THAT(problems(with(""), {text}), Contains(part) && Contains("  --> command line: " + text + "\n"));
  };
  bad("train.steps=ten", "error[E0104]: `steps` must be of type integer, not string \"ten\"");
  bad("train.stpes=10", "did you mean `steps`?");
  // A name that is a number is looked for as any other, and not passed over.
  bad("model.preset=3", "error[E0112]: `llama` has no preset `3`");
  bad("model.plugin=true", "error[E0110]: no model plugin named `true`");
  bad("optimizer.plugin=3", "error[E0110]: no optimizer plugin named `3`");
  CHECK_THAT(problems("[model]\nplugin = \"llama\"\n", {"model.from=2026"}),
             Contains("error[E0118]: /2026 is not a directory") && Contains("command line: model.from=2026"));
  bad("trian.steps=10", "did you mean `train`?");
  bad("offload.update=disk", "`update` must be one of its choices, not string \"disk\"");
  bad("train.steps=0", "`steps` must be at least 1, at most 1000000000, not integer 0");
  bad("train.steps", "an override is section.key=value");
  bad("=3", "an override is section.key=value");
  bad("train.=3", "an override is section.key=value");
  bad(".steps=3", "an override is section.key=value");
  bad("train.steps.more=3", "`steps` cannot be a table");
  bad("steps=10", "`steps` is outside any section");
  bad("steps=10", "it belongs to [train]");
  bad("train.steps=", "an override is section.key=value");
  bad("run.name=\u03ae/a", "`name` is not a valid directory name");
  bad("data.paths=[a]", "the shell removes one pair of quotes: 'data.paths=[a]'");
  bad("data.paths=a.txt", "`paths` must be of type list of strings, not string \"a.txt\"");
  bad("run.name={a=1}", "`name` cannot be a table");
  bad("train.grad_clip=inf", "must be finite");
  bad("train.grad_clip=nan", "must be finite");
  for (const char* several : {"train.steps=1\nseed=2", "train.steps=1\ntrain.seed=2", "train.steps=1\n[log]\nevery=2",
                              "data.paths=[\"a\",\n\"b\"]\ntrain.seed=2", "train={steps=1, seed=2}", "train={}",
                              "train.steps=1\r\nlog.every=2"})
    CHECK_THAT(problems(with(""), {several}),
               Contains("error[E0114]: an override sets one key") && Contains("\n1 problem in"));
  CHECK_THAT(problems(with(""), {"train.x={a" + std::string(300000, '.') + "}"}),
             Contains("error[E0114]: not valid TOML: a key of more than 32 parts"));
  CHECK_THAT(problems(with(""), {"optimizer.plugin=sgdd"}), Contains("did you mean `sgd`?"));
}

TEST_CASE("a key can be unset") {
  const std::string text = with("[train]\nsteps = 5\n[optimizer]\nbeta1 = 0.5\n");
  const Config config =
      parse(text, {"-train.steps", "-model.preset", "model.hidden_size=8", "model.num_hidden_layers=1"});
  CHECK(config.section("train").integer("steps") == 1000);
  CHECK_FALSE(config.section("train").given("steps"));
  CHECK(config.section("model").integer("hidden_size") == 8);
  CHECK(config.notes().empty());
  // It is removed first, so an override of the same key applies.
  CHECK(parse(text, {"train.steps=7", "-train.steps"}).section("train").integer("steps") == 7);
  // Another plugin does not know the key.
  CHECK_THAT(problems(text, {"optimizer.plugin=sgd"}), Contains("`beta1` belongs to plugin `adamw`, not `sgd`"));
  CHECK(problems(text, {"optimizer.plugin=sgd", "-optimizer.beta1"}).empty());
  // A run that was given the key says how to resume without it.
  const std::string run = resolved_text(parse(text));
  CHECK_THAT(problems(run, {"optimizer.plugin=sgd"}),
             Contains("error[E0105]: `beta1` belongs to plugin `adamw`, not `sgd`") &&
                 Contains("help: to resume without it: --unset optimizer.beta1\n"));
  // All keys of the old plugin are told at once, with what leaves them out.
  const std::string more = with("[optimizer]\nbeta1 = 0.5\neps = 1e-6\nlearning_rate = 0.1\nweight_decay = 0.2\n");
  const std::string told = problems(more, {"optimizer.plugin=sgd", "model.plugin=llama"});
  CHECK_THAT(told, Contains("error[E0105]: `beta1`, `eps`, `weight_decay` belong to plugin `adamw`, not `sgd`\n") &&
                       Contains("help: to start without them: --unset optimizer.beta1 --unset optimizer.eps --unset "
                                "optimizer.weight_decay\n") &&
                       Contains("\n1 problem in") && Contains("7 | beta1 = 0.5"));
  CHECK(problems(more, {"optimizer.plugin=sgd", "-optimizer.beta1", "-optimizer.eps", "-optimizer.weight_decay"})
            .empty());
  // A file that names the plugin itself is corrected where it is wrong.
  CHECK_THAT(problems(with("[optimizer]\nplugin = \"sgd\"\nbeta1 = 0.5\neps = 1e-6\n")),
             Contains("2 problems in") && !Contains("--unset"));
  CHECK_THAT(problems(with("[schedule]\nkind = \"WarmupLR\"\ncompatible = \"deepspeed\"\nwarmup_num_steps = 3\n"
                           "warmup_min_lr = 0.0\n"),
                      {"schedule.kind=constant", "-schedule.compatible"}),
             Contains("to start without them: --unset schedule.warmup_min_lr --unset schedule.warmup_num_steps\n"));
  const Config other = parse(run, {"optimizer.plugin=sgd", "-optimizer.beta1"});
  CHECK(other.section("optimizer").string("plugin") == "sgd");
  // All of a table.
  CHECK_FALSE(
      parse(with("[comm.describe]\nlatency = \"5us\"\n"), {"-comm.describe"}).section("comm").has("describe.latency"));
  // An absent key changes nothing and is noted; an impossible one is refused.
  CHECK(parse(text, {"-train.seed"}).notes() ==
        std::vector<std::string>{"--unset train.seed: the file does not set it, so nothing changes"});
  for (const char* wrong : {"-train", "-", "-train.", "-trian.steps", "-.steps"})
    CHECK_THAT(problems(text, {wrong}), Contains("error[E0114]: --unset takes section.key") &&
                                            Contains(std::string("command line: --unset ") + (wrong + 1)));
}
