// SPDX-License-Identifier: Apache-2.0
// Keys whose meaning is easily missed: curves, what is off or null, old spellings, two rates.
#include <fmt/format.h>

#include <cmath>

#include "converted.hpp"
#include "session/planning/schedule.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

Converted arguments(const std::string& more, const std::vector<std::string>& ignored = {}) {
  return converted(R"({"output_dir": "o", "max_steps": 50, "learning_rate": 0.001)" + more + "}", "--preset tiny",
                   "args.json", ignored);
}

std::string refused(const std::string& more) {
  return refusal(R"({"output_dir": "o", "max_steps": 50, "learning_rate": 0.001)" + more + "}", "--preset tiny",
                 "args.json");
}

Config meant_config(const Converted& made) {
  INFO(made.text << notes_of(made));
  return built_config(made.text);
}

std::string curve(const std::string& kind, const std::string& keys) {
  return R"(, "lr_scheduler_type": ")" + kind + R"(", "lr_scheduler_kwargs": {)" + keys + "}";
}

}  // namespace

TEST_CASE("convert: curves of Hugging Face's, update by update") {
  const double pi = std::acos(-1.0);
  const auto same = [](const Converted& made, double warmup, auto f) {
    INFO(made.text << notes_of(made));
    const Schedule schedule = make_schedule(built_config(made.text), built_plugins());
    for (int64_t k = 1; k <= 50; ++k) {
      INFO("update " << k);
      const double t = (double(k) - warmup) / (50 - warmup);
      CHECK(schedule.at(k) ==
            Approx(1e-3 * (double(k) < warmup ? double(k) / warmup : f(t))).epsilon(1e-9).margin(1e-15));
    }
  };
  const auto wave = [&](double t) { return 0.5 * (1 + std::cos(pi * t)); };
  same(arguments(curve("cosine", "")), 0, wave);
  same(arguments(curve("cosine", R"("num_cycles": 0.5)")), 0, wave);
  same(arguments(curve("cosine_with_min_lr", R"("min_lr_rate": 0.1)") + R"(, "warmup_steps": 10)"), 10,
       [&](double t) { return 0.1 + 0.9 * wave(t); });
  same(arguments(curve("cosine_with_min_lr", R"("min_lr": 0.0002)") + R"(, "warmup_ratio": 0.1)"), 5,
       [&](double t) { return 0.2 + 0.8 * wave(t); });
  same(arguments(curve("polynomial", R"("lr_end": 0.0001)")), 0, [](double t) { return 0.1 + 0.9 * (1 - t); });
  same(arguments(curve("polynomial", R"("lr_end": 0, "power": 1.0)")), 0, [](double t) { return 1 - t; });
  same(arguments(curve("linear", "")), 0, [](double t) { return 1 - t; });
  CHECK_THAT(notes_of(arguments(curve("cosine_with_min_lr", R"("min_lr_rate": 0.1)"))),
             Contains("the curve is the same"));
  // Keys without a counterpart are not claimed to be the same.
  CHECK_THAT(refused(curve("cosine", R"("num_cycles": 2)")),
             Contains("half a wave") && Contains("--ignore lr_scheduler_kwargs.num_cycles"));
  CHECK_THAT(refused(curve("cosine_with_restarts", R"("num_cycles": 3)")), Contains("half a wave"));
  CHECK_THAT(refused(curve("polynomial", R"("power": 2.0)")), Contains("a straight line"));
  CHECK_THAT(refused(curve("cosine_with_min_lr", "")), Contains("neither min_lr nor min_lr_rate"));
  CHECK_THAT(refused(curve("cosine_with_min_lr", R"("min_lr": 1e-5, "min_lr_rate": 0.1)")),
             Contains("are the same setting"));
  CHECK_THAT(refused(curve("linear", R"("novel": 2)")), Contains("`linear` has no such key here"));
  for (const char* kind : {"reduce_lr_on_plateau", "greedy", "cosine_warmup_with_min_lr"})
    CHECK_THAT(refused(curve(kind, "")), Contains("there is no such schedule here"));
  CHECK(meant_config(arguments(curve("cosine", R"("num_cycles": 2)"), {"lr_scheduler_kwargs.num_cycles"}))
            .section("schedule")
            .string("kind") == "cosine");
}

TEST_CASE("convert: false and null mean what they mean there") {
  CHECK(meant_config(arguments(R"(, "max_grad_norm": null)")).section("train").number("grad_clip") == 0);
  CHECK(meant_config(arguments("")).section("train").number("grad_clip") == 1);
  CHECK(meant_config(arguments(R"(, "save_total_limit": null)")).section("checkpoint").integer("keep") == 0);
  CHECK(meant_config(arguments(R"(, "bf16": null, "fp16": false)")).section("precision").string("plugin") == "fp32");
  CHECK(meant_config(arguments(R"(, "train_file": "a.txt", "add_eos_token": false)")).section("data").boolean("eot") ==
        false);
  const Converted ds = converted(R"({"train_batch_size": 8, "gradient_clipping": null})", "--preset tiny --num_gpus 1");
  CHECK(built_config(ds.text).section("train").number("grad_clip") == 0);
  // Features that are off there, and could be on here.
  const std::string off = notes_of(converted(R"({"train_batch_size": 8, "fp16": {"enabled": false, "loss_scale": 0},
    "bf16": {"enabled": true}, "amp": {"enabled": false, "opt_level": "O1"}, "wandb": {"enabled": false}})",
                                             "--num_gpus 1"));
  CHECK_THAT(off, Contains("off there and here: amp, fp16\n") && Contains("no effect on the numbers: wandb\n"));
  CHECK_THAT(notes_of(arguments(R"(, "load_best_model_at_end": false)")),
             Contains("off there and here: load_best_model_at_end"));
  // Settings that the engine has anyway.
  const std::string notes =
      notes_of(arguments(R"(, "shuffle_dataset": true, "decoupled_weight_decay": true, "train_on_inputs": true)"));
  CHECK_THAT(notes, Contains("`shuffle_dataset` = true: the same here: samples are shuffled anew in every epoch"));
  CHECK_THAT(notes, Contains("`decoupled_weight_decay` = true: the same here"));
  CHECK_THAT(notes, Contains("the loss is taken on prompts as well"));
  CHECK_THAT(notes, !Contains("off there"));
  CHECK_THAT(refused(R"(, "shuffle_dataset": false)"), Contains("samples are always shuffled here"));
  CHECK_THAT(refused(R"(, "decoupled_weight_decay": false)"), Contains("decays weights apart from the gradient here"));
  CHECK_THAT(notes_of(arguments(R"(, "train_on_inputs": false)")),
             Contains("`train_on_inputs` = false: the loss is taken on the whole text here"));
  const auto adam = [](const std::string& key) {
    return R"({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 3e-5, "weight_decay": 0.01)" +
           key + "}}}";
  };
  CHECK_THAT(notes_of(converted(adam(R"(, "bias_correction": true)"))),
             Contains("the same here: Adam's moments are corrected"));
  CHECK_THAT(refusal(adam(R"(, "bias_correction": false)")),
             Contains("always corrected for their bias here") && Contains("--ignore optimizer.params.bias_correction"));
  CHECK_THAT(refusal(adam(R"(, "amsgrad": true)")), Contains("no AMSGrad"));
  CHECK_THAT(refusal(adam(R"(, "adam_w_mode": false)")), Contains("adds the decay to the gradient"));
  CHECK_NOTHROW(converted(adam(R"(, "adam_w_mode": true, "amsgrad": false)")));
  CHECK_THAT(refused(R"(, "label_smoothing_factor": 0.1)"), Contains("without smoothing"));
  CHECK_THAT(notes_of(arguments(R"(, "label_smoothing_factor": 0.0)")),
             Contains("off there and here: label_smoothing_factor"));
}

TEST_CASE("convert: old and new spellings are one setting") {
  const auto offload = [](const std::string& keys) {
    const Converted made =
        converted(R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {)" + keys + "}}", "--preset tiny");
    INFO(made.text << notes_of(made));
    const Config config = built_config(made.text);
    return config.section("offload").string("optimizer") + " " + config.section("offload").string("parameters");
  };
  CHECK(offload(R"("stage": 2, "cpu_offload": true, "cpu_offload_params": true)") == "host none");
  CHECK(offload(R"("stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})") ==
        "host none");
  CHECK(offload(R"("stage": 3, "cpu_offload": true, "cpu_offload_params": true)") == "host host");
  CHECK(offload(R"("stage": 3, "cpu_offload_param": true)") == "none host");
  CHECK(offload(R"("stage": 2, "cpu_offload": false)") == "none none");
  const auto one = [](const std::string& text) {
    return meant_config(converted("output_dir: o\nmax_steps: 5\nmodel_name: tiny\n" + text, "", "a.yaml"));
  };
  CHECK(one("per_gpu_train_batch_size: 3\n").section("train").integer("micro_batch") == 3);
  CHECK(one("evaluation_strategy: steps\neval_steps: 5\n").section("train").integer("eval_every") == 5);
  CHECK(one("eval_strategy: steps\neval_steps: 5\n").section("train").integer("eval_every") == 5);
  CHECK(one("lr_scheduler: cosine\n").section("schedule").string("kind") == "cosine");
  CHECK(one("num_warmup_steps: 2\n").section("schedule").integer("warmup_steps") == 2);
  CHECK(one("adafactor: false\n").section("optimizer").string("plugin") == "adamw");
  CHECK_THAT(refusal("output_dir: o\nmax_steps: 5\nadafactor: true\n", "", "a.yaml"),
             Contains("there is no such optimizer here"));
}

TEST_CASE("convert: Muon of DeepSpeed has two rates and no decay") {
  const auto with = [](const std::string& params, const std::string& more = "") {
    return R"({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Muon", "params": {)" + params + "}}" + more +
           "}";
  };
  const Config both =
      meant_config(converted(with(R"("lr": 0.02, "muon_lr": 0.02, "adam_lr": 0.0003)"), "--preset tiny"));
  const Section& muon = both.section("optimizer");
  CHECK(muon.string("plugin") == "muon");
  CHECK(muon.number("weight_decay") == 0);
  CHECK(muon.number("learning_rate") == 3e-4);
  CHECK(muon.number("learning_rate") * muon.number("matrix_rate") == Approx(0.02));
  CHECK(muon.string("scale") == "shape");
  CHECK(muon.number("beta2") == 0.95);
  const Config one =
      meant_config(converted(with(R"("lr": 0.01, "weight_decay": 0.1, "momentum": 0.9)"), "--preset tiny"));
  CHECK(one.section("optimizer").number("learning_rate") == 0.01);
  CHECK(one.section("optimizer").number("matrix_rate") == 1);
  CHECK(one.section("optimizer").number("weight_decay") == 0.1);
  CHECK(one.section("optimizer").number("momentum") == 0.9);
  const Config none = meant_config(converted(with(""), "--preset tiny"));
  CHECK(none.section("optimizer").number("learning_rate") == 3e-4);
  CHECK(none.section("optimizer").number("matrix_rate") * 3e-4 == Approx(0.02));
  CHECK_THAT(refusal(with(R"("muon_lr": 0.02, "adam_lr": 0.0003)",
                          R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.02}})")),
             Contains("the scheduler gives both parts one rate there"));
}

TEST_CASE("convert: optimizers that are not here are refused, also those with Adam in their name") {
  for (const char* name : {"galore_adamw", "schedule_free_adamw", "grokadamw", "adalomo", "ademamix", "lion_32bit",
                           "adafactor", "apollo_adamw", "stable_adamw", "rmsprop"})
    CHECK_THAT(refused(R"(, "optim": ")" + std::string(name) + "\""), Contains("there is no such optimizer here"));
  for (const char* name : {"Lamb", "OneBitAdam", "ZeroOneAdam", "MuAdam", "Lion"})
    CHECK_THAT(refusal(R"({"train_batch_size": 8, "optimizer": {"type": ")" + std::string(name) + R"("}})"),
               Contains("there is no such optimizer here"));
  CHECK(meant_config(arguments(R"(, "optim": "paged_adamw_32bit")")).section("optimizer").string("plugin") == "adamw");
}

TEST_CASE("convert: epochs are epochs here") {
  const Converted made = converted(R"({"output_dir": "o", "num_train_epochs": 2})", "--preset tiny", "args.json");
  CHECK(meant_config(made).section("train").number("epochs") == 2);
  CHECK_THAT(notes_of(made),
             Contains("rounded up once; others round up each epoch, so that their run has at most 2 steps more"));
  CHECK(meant_config(converted(R"({"output_dir": "o", "learning_rate": 1e-3})", "--preset tiny", "args.json"))
            .section("train")
            .number("epochs") == 3);
  CHECK(meant_config(
            converted(R"({"output_dir": "o", "num_train_epochs": 2, "max_steps": 7})", "--preset tiny", "args.json"))
            .section("train")
            .integer("steps") == 7);
}
