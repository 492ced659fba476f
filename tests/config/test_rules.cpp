// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

TEST_CASE("global_batch") {
  const Config config = parse(with("[train]\nglobal_batch = 24\nmicro_batch = 8\n"));
  CHECK(config.section("train").integer("accumulate") == 3);
  CHECK(config.section("train").settings().at("accumulate").origin == "derived");
  CHECK_FALSE(parse(with("")).section("train").has("global_batch"));
  CHECK_THAT(problems(with("[train]\nglobal_batch = 20\nmicro_batch = 8\n")),
             Contains("error[E0113]: `global_batch` = 20 is not a multiple of `micro_batch` = 8") &&
                 Contains("opt.toml:7:1") && Contains("train.global_batch = 24, or train.micro_batch = 5"));
  CHECK_THAT(problems(with("[train]\nglobal_batch = 999999937\nmicro_batch = 999999936\n")),
             Contains("train.global_batch = 1999999872, or train.micro_batch = 1"));
  CHECK_THAT(problems(with("[train]\naccumulate = 1000000000\nmicro_batch = 1000000\n")),
             Contains("error[E0106]") && Contains("more than 2^48 tokens") && Contains("lower `accumulate`"));
  CHECK_THAT(problems(with("[train]\nglobal_batch = 4\nmicro_batch = 8\n")),
             Contains("train.global_batch = 8, or train.micro_batch = 4"));
  CHECK_THAT(problems(with("[train]\nglobal_batch = 8\naccumulate = 1\n")),
             Contains("`global_batch` and `accumulate` are both given"));
  CHECK_THAT(problems(with("[train]\nglobal_batch = 8\n"), {"train.accumulate=2"}),
             Contains("are both given") && Contains("or set both with train.global_batch=2"));
  // The batch of a wrong micro_batch is not judged.
  CHECK_THAT(problems(with("[train]\nglobal_batch = 8\nmicro_batch = 0\n")), Contains("1 problem in"));
}

TEST_CASE("the name of a run is that of a directory") {
  CHECK_THAT(problems(with("[run]\nname = \"../x\"\n")), Contains("`name` is not a valid directory name"));
  const auto given = [](const std::string& name) { return with("[run]\nname = \"" + name + "\"\n"); };
  for (const std::string& bad :
       {std::string(""), std::string("."), std::string(".."), std::string("a/b"), std::string("a\\n"),
        std::string("a\\t"), std::string("\\u007f"), std::string("\\u0085"), std::string(256, 'a')})
    CHECK_THAT(problems(given(bad)), Contains("error[E0106]"));
  for (const std::string& good : {std::string("\u4e2d\u6587\u8bad\u7ec3"), std::string("a b"), std::string("..."),
                                  std::string("r\u00e9sum\u00e9 \U0001f600"), std::string(255, 'a')})
    CHECK(parse(given(good)).section("run").string("name") == good);
  const auto name = [](const std::string& file) {
    return Config::parse(with(""), file, "/", {}, plugins()).section("run").string("name");
  };
  CHECK(name("/a/b.c/d e.toml") == "d-e");
  CHECK(name("/a/\u4e2d\u6587.toml") == "\u4e2d\u6587");
  CHECK(name("/a/\u4e2d\u6587 \u4e8c.toml") == "\u4e2d\u6587-\u4e8c");
  CHECK(name("/a/\xff\u4e2d.toml") == "\u4e2d");
  CHECK(name(std::string(300, '/') + "folder/longer.toml") == "longer");
  CHECK(name(std::string(254, 'a') + "\u4e2d.toml") == std::string(254, 'a'));  // whole characters
  CHECK(name(".toml") == ".toml");
  CHECK(name("...") == "run");
  CHECK(name("/") == "run");
  // A run's own configuration gives the derived name. It must be valid there, or the run can never be resumed.
  for (const char* file : {"/a/\u043a\u043e\u0434 1.toml", "-rf.toml", "--.toml", " .x", ".-a.toml"}) {
    INFO(file << ": " << name(file));
    CHECK(problems(with("[run]\nname = \"" + name(file) + "\"\n")).empty());
  }
  CHECK(name("-rf.toml") == "rf");
}

TEST_CASE("schedules") {
  CHECK_THAT(problems(with("[schedule]\nkind = \"cosine\"\nmin_learning_rate = 1.0\n")),
             Contains("`min_learning_rate` is above optimizer.learning_rate = 0.0003"));
  CHECK_THAT(problems(with("[schedule]\nkind = \"WarmupLR\"\n")),
             Contains("compatible = \"none\" has no kind = \"WarmupLR\""));
  CHECK_THAT(problems(with("[schedule]\nwarmup_num_steps = 3\n")),
             Contains("`warmup_num_steps` is not a key of kind = \"constant\"") &&
                 Contains("help: it reads warmup_steps, warmup, min_learning_rate"));
  CHECK(parse(with("[schedule]\nmin_learning_rate = 1e-5\n")).notes().size() == 1);
  CHECK(parse(with("[schedule]\nwarmup = \"log\"\n")).notes().size() == 1);
  CHECK_THAT(parse(with("[schedule]\nwarmup_steps = 50\n[train]\nsteps = 50\n")).notes().at(0),
             Contains("before the warm-up"));
}

TEST_CASE("DeepSpeed's schedules") {
  const auto schedule = [](const std::string& more) {
    return parse(with("[schedule]\ncompatible = \"deepspeed\"\n" + more)).section("schedule");
  };
  const auto wrong = [](const std::string& more) {
    return problems(with("[schedule]\ncompatible = \"deepspeed\"\n" + more));
  };
  const Section warmup = schedule("kind = \"WarmupLR\"\n");
  CHECK(warmup.number("warmup_max_lr") == 3e-4);  // the optimizer's
  CHECK(warmup.string("warmup_type") == "log");
  CHECK(warmup.integer("warmup_num_steps") == 1000);
  CHECK(warmup.number("warmup_min_lr") == 0);
  const Section decay = schedule("kind = \"WarmupDecayLR\"\ntotal_num_steps = 2000\n");
  CHECK(decay.number("warmup_max_lr") == 0.001);  // not the optimizer's
  CHECK(schedule("kind = \"WarmupDecayLR\"\ntotal_num_steps = 2000\nwarmup_max_lr = 0.5\n").number("warmup_max_lr") ==
        0.5);
  const Section cosine = schedule("kind = \"WarmupCosineLR\"\ntotal_num_steps = 2000\n");
  CHECK(cosine.number("cos_min_ratio") == 1e-4);
  CHECK(cosine.number("warmup_min_ratio") == 0);
  CHECK_THAT(wrong(""), Contains("compatible = \"deepspeed\" has no kind = \"constant\""));
  CHECK_THAT(wrong("kind = \"cosine\"\n"), Contains("compatible = \"deepspeed\" has no kind = \"cosine\""));
  CHECK_THAT(wrong("kind = \"WarmupDecayLR\"\n"), Contains("WarmupDecayLR needs `total_num_steps`"));
  CHECK_THAT(wrong("kind = \"WarmupCosineLR\"\ntotal_num_steps = 9\nwarmup_max_lr = 1\n"),
             Contains("`warmup_max_lr` is not a key of kind = \"WarmupCosineLR\""));
  CHECK_THAT(wrong("kind = \"WarmupLR\"\nwarmup_steps = 1\n"),
             Contains("`warmup_steps` is not a key of kind = \"WarmupLR\""));
}

TEST_CASE("a plugin's default of a core key") {
  CHECK(parse(with("[optimizer]\nplugin = \"sgd\"\n")).section("optimizer").number("learning_rate") == 0.1);
  CHECK(parse(with("")).section("optimizer").number("learning_rate") == 3e-4);
  CHECK_THAT(problems(with("[optimizer]\nplugin = \"sgd\"\nlearning_rate = 0\n")), Contains("must be above 0"));
}

TEST_CASE("`from` takes the place of a preset, and must be there") {
  const std::string text = problems("[model]\nplugin = \"llama\"\npreset = \"tiny\"\nfrom = \"nowhere\"\n");
  CHECK_THAT(text, Contains("error[E0113]: `preset` and `from` are both given") && Contains("opt.toml:3:1"));
  CHECK_THAT(text, Contains("error[E0118]: /nowhere is not a directory") && Contains("opt.toml:4:8"));
}

TEST_CASE("the library's own sums are noted") {
  CHECK(parse(with("[comm]\nreduce = \"tree\"\ntimeout = \"90s\"\n")).section("comm").number("timeout") == 90);
  const Config config = parse(with("[comm]\nreduce = \"fast\"\n"));
  CHECK(std::any_of(config.notes().begin(), config.notes().end(),
                    [](const std::string& note) { return note.find("comm.reduce = \"fast\" leaves") == 0; }));
  CHECK_THAT(problems(with("[comm]\ntimeout = \"soon\"\n")), Catch::Contains("must be of type duration"));
}

TEST_CASE("model.z_loss of older configurations is loss.z_loss") {
  const auto z_loss = [](const std::string& text, const std::vector<std::string>& overrides = {}) {
    return parse(text, overrides).section("loss").number("z_loss");
  };
  const std::string own = "[model]\nplugin = \"llama\"\nhidden_size = 64\nnum_hidden_layers = 2\n";
  const std::string old = own + "z_loss = 0.01\n", both = old + "[loss]\nz_loss = 0.02\n";
  CHECK(z_loss(own) == 0);
  CHECK(z_loss(old) == 0.01);
  CHECK(parse(old).section("loss").given("z_loss"));
  CHECK(parse(old).section("model").settings().count("z_loss") == 0);
  CHECK(z_loss(own, {"model.z_loss=0.03"}) == 0.03);
  CHECK(z_loss(old, {"loss.z_loss=0.03"}) == 0.03);
  CHECK(z_loss(own + "[loss]\nz_loss = 0.02\n", {"model.z_loss=0.03"}) == 0.03);
  CHECK_THAT(problems(both),
             Contains("error[E0113]: `model.z_loss` and `loss.z_loss` are both given") && Contains("opt.toml:5:1"));
  CHECK_THAT(problems(own, {"model.z_loss=0.1", "loss.z_loss=0.2"}), Contains("are both given"));
  CHECK_THAT(problems(own + "z_loss = 2\n"), Contains("error[E0106]: `z_loss`"));
  // A plugin that has the key keeps it.
  SchemaSource source = plugins();
  PluginSchema with_key = *source.find("eng.model/1", "llama");
  with_key.options.push_back({"z_loss", Type::number});
  source.find = [&](const std::string& kind, const std::string& name) {
    return kind == "eng.model/1" ? &with_key : plugins().find(kind, name);
  };
  const Config kept = Config::parse(old, "opt.toml", "", {}, source);
  CHECK(kept.section("model").number("z_loss") == 0.01);
  CHECK(kept.section("loss").number("z_loss") == 0);
}
