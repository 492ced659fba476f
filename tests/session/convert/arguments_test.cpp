// SPDX-License-Identifier: Apache-2.0
// Hugging Face's training arguments, launch lines, and files that cannot be read.
#include <cmath>
#include <functional>

#include "converted.hpp"
#include "session/planning/schedule.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

const char* const yaml = R"(---
# a small fine-tuning
model_name_or_path: "facebook/opt-350m"   # published
output_dir: out
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
learning_rate: 1e-5
lr_scheduler_type: cosine
warmup_ratio: 0.1
max_steps: 200
eval_strategy: 'steps'
eval_steps: 50
save_steps: 0.25
bf16: true
gradient_checkpointing: false
optim: adamw_bnb_8bit
label_smoothing_factor: 0.1
report_to: [wandb, tensorboard]
fsdp:
  - full_shard
  - auto_wrap
seed: 7
dataloader_num_workers: 0
tf32:
)";

}  // namespace

TEST_CASE("convert: training arguments as YAML") {
  const std::string line = "torchrun --nproc_per_node 2 --nnodes=2 train.py";
  CHECK_THAT(refusal(yaml, line, "args.yaml"), Contains("`label_smoothing_factor` = 0.1: the loss is cross-entropy") &&
                                                   Contains("--ignore label_smoothing_factor"));
  const Converted made = converted(yaml, line, "args.yaml", {"label_smoothing_factor"});
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  const Section &train = config.section("train"), &schedule = config.section("schedule");
  CHECK(made.ranks == 4);
  CHECK(train.integer("micro_batch") == 4);
  CHECK(train.integer("accumulate") == 2);
  CHECK(train.integer("steps") == 200);
  CHECK(train.integer("seed") == 7);
  CHECK(train.integer("eval_every") == 50);
  CHECK(config.section("checkpoint").integer("every") == 50);
  CHECK(schedule.string("kind") == "cosine");
  CHECK(schedule.integer("warmup_steps") == 20);
  CHECK(config.section("optimizer").string("plugin") == "adamw8bit");
  CHECK(config.section("optimizer").number("learning_rate") == 1e-5);
  CHECK(config.section("optimizer").number("beta2") == 0.999);     // not the engine's default
  CHECK(config.section("optimizer").number("weight_decay") == 0);  // nor this
  CHECK(config.section("zero").string("plugin") == "zero3");
  const std::string notes = notes_of(made);
  CHECK_THAT(notes, Contains("`label_smoothing_factor` is ignored, as --ignore says"));
  CHECK_THAT(notes, Contains("`report_to`: no effect on the numbers: every step's numbers are in metrics.jsonl"));
  CHECK_THAT(notes, Contains("one update earlier"));
  CHECK_THAT(notes, Contains("`dataloader_num_workers`: no effect on the numbers: token files are read ahead"));
  CHECK(line_of(made, "warmup_steps") == "warmup_steps = 20 # from: warmup_ratio = 0.1 x 200");
}

TEST_CASE("convert: training arguments as JSON, with DeepSpeed's file inside") {
  const Converted made = converted(R"({"output_dir": "out", "per_device_train_batch_size": 2, "num_train_epochs": 3.0,
    "save_strategy": "no", "eval_steps": null, "accelerator_config": {"split_batches": false}, "lr_scheduler_kwargs": {},
    "fsdp": [], "run_name": "./out/1", "max_steps": -1, "logging_dir": "out/runs", "optim": "adamw_torch", "bf16": false,
    "deepspeed": {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"}}})",
                                   "--preset tiny", "training_args.json");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(config.section("zero").string("plugin") == "zero2");
  CHECK(config.section("train").integer("micro_batch") == 2);
  CHECK(config.section("checkpoint").integer("every") == 0);
  CHECK_THAT(notes_of(made),
             Contains("`num_train_epochs`: here it is `train.epochs`, but its steps are epochs x training samples"));
  CHECK(config.section("train").number("epochs") == 3);
  CHECK_THAT(notes_of(made), Contains("`run_name` = \"./out/1\" is not the name of a directory"));
  CHECK_THAT(notes_of(made), Contains("`accelerator_config.split_batches` = false: the same here") &&
                                 Contains("empty there, and not written: fsdp"));
}

TEST_CASE("convert: Hugging Face's inverse_sqrt and warmup_stable_decay, update by update") {
  const auto made_of = [](const std::string& kind, const std::string& more) {
    return converted(R"({"output_dir": "out", "learning_rate": 8e-3, "max_steps": 100, "lr_scheduler_type": ")" + kind +
                         "\"" + more + "}",
                     "--preset tiny", "training_args.json");
  };
  // Their update k + 1 has the factor f(k), which is the rate of update k here.
  const auto same = [&](const Converted& made, double from, const std::function<double(double)>& f) {
    INFO(made.text << notes_of(made));
    const Schedule schedule = make_schedule(built_config(made.text), built_plugins());
    for (int64_t k = 1; k <= 100; ++k) {
      INFO("update " << k);
      if (double(k) >= from) CHECK(schedule.at(k) == Approx(8e-3 * f(double(k))).epsilon(1e-12).margin(1e-15));
    }
    CHECK_THAT(notes_of(made), Contains("one update earlier"));
  };
  const auto root = [](double warmup, double scale) {
    return [=](double k) { return k < warmup ? k / warmup : 1 / std::sqrt((k + scale - warmup) / scale); };
  };
  same(made_of("inverse_sqrt", ""), 1, root(0, 10000));
  same(made_of("inverse_sqrt", R"(, "warmup_steps": 20)"), 1, root(20, 20));
  same(made_of("inverse_sqrt", R"(, "warmup_ratio": 0.1, "lr_scheduler_kwargs": {"timescale": 7})"), 1, root(10, 7));

  const auto stable = [](double warmup, double keep, double decay, double least, auto shape) {
    return [=](double k) {
      if (k < warmup) return k / warmup;
      if (k < warmup + keep) return 1.0;
      return k < warmup + keep + decay ? shape((k - warmup - keep) / decay) * (1 - least) + least : least;
    };
  };
  const auto wave = [](double t) { return 0.5 * (1 + std::cos(std::acos(-1.0) * t)); };
  same(made_of("warmup_stable_decay", R"(, "warmup_steps": 10, "lr_scheduler_kwargs": {"num_decay_steps": 30})"), 1,
       stable(10, 60, 30, 0, wave));
  same(made_of("warmup_stable_decay",
               R"(, "lr_scheduler_kwargs": {"num_decay_steps": 20, "decay_type": "1-sqrt", "min_lr_ratio": 0.25})"),
       1, stable(0, 80, 20, 0.25, [](double t) { return 1 - std::sqrt(t); }));
  // With a warm-up, their least rate is that of its beginning too: the same only from its end.
  const Converted least =
      made_of("warmup_stable_decay", R"(, "warmup_steps": 10, "lr_scheduler_kwargs": {"num_decay_steps":
    20, "num_stable_steps": 70, "decay_type": "linear", "min_lr_ratio": 0.5})");
  same(least, 10, stable(10, 70, 20, 0.5, [](double t) { return 1 - t; }));
  CHECK_THAT(notes_of(least), Contains("there the warm-up begins at that rate too") && !Contains("the decay ends at"));
  CHECK_THAT(notes_of(made_of("warmup_stable_decay",
                              R"(, "lr_scheduler_kwargs": {"num_decay_steps": 20, "num_stable_steps": 40})")),
             Contains("there the decay ends at step 60; here it ends with the run, at step 100"));
  CHECK_THAT(refusal(R"({"output_dir": "out", "lr_scheduler_type": "warmup_stable_decay"})", "--preset tiny",
                     "training_args.json"),
             Contains("`lr_scheduler_kwargs.num_decay_steps` is missing"));
  // On a command line they are one word of JSON.
  const Converted line = converted("", R"(train.py --output_dir out --preset tiny --max_steps 50 --lr_scheduler_type
    warmup_stable_decay --lr_scheduler_kwargs '{"num_decay_steps": 5, "warmup_type": "cosine", "num_cycles": 1.5}')");
  CHECK(built_config(line.text).section("schedule").integer("decay_steps") == 5);
  CHECK_THAT(notes_of(line), Contains("no equivalent; the warm-up is linear") && Contains("half a wave"));
}

TEST_CASE("convert: what is not known stays open") {
  const Converted made = converted(R"({"train_batch_size": 8})");
  CHECK_THAT(made.text, Contains("[model]\n# plugin = ") && Contains("[data]\n# paths = ") && Contains("# steps = ") &&
                            Contains("# sequence_length = "));
  const std::string notes = notes_of(made);
  for (const char* part : {"the model is not known", "the data are not known", "set train.steps",
                           "set train.sequence_length", "the script makes it: set [optimizer]"})
    CHECK_THAT(notes, Contains(part));
  CHECK_NOTHROW(built_config(made.text, {"model.plugin=llama", "model.preset=tiny"}));
  CHECK_THAT(notes_of(converted("", "--model_name_or_path bigscience/bloom-560m --max_steps 3")),
             Contains("there is no preset of this name: set [model] plugin"));
}

TEST_CASE("a file that arguments name is looked for where trainers look, and then beside them") {
  const std::string yaml = "max_steps: 3\nper_device_train_batch_size: 2\ndeepspeed: ds/z3.json\n";
  std::vector<std::string> asked;
  std::string there = "ds/z3.json";
  const auto convert = [&](const std::string& arguments) {
    ForeignRun run{"cases/run.yaml", yaml, arguments, {}};
    run.read = [&](const std::string& path) -> std::string {
      asked.push_back(path);
      if (path != there) throw Error(Exit::usage, "cannot read " + path);
      return R"({"zero_optimization": {"stage": 3}})";
    };
    asked.clear();
    return line_of(convert_run(run, schemas_of(built_plugins())), "plugin = \"zero3\"");
  };
  CHECK_THAT(convert(""), Contains("zero3"));
  CHECK(asked == std::vector<std::string>{"ds/z3.json"});
  there = "cases/ds/z3.json";
  CHECK_THAT(convert(""), Contains("zero3"));
  CHECK(asked == std::vector<std::string>{"ds/z3.json", "cases/ds/z3.json"});
  there = "nowhere";
  try {
    convert("");
    FAIL("converted");
  } catch (const Error& e) {
    CHECK(e.what() == std::string("cannot read ds/z3.json"));
    CHECK_THAT(e.help(), Contains("in the working directory and beside cases/run.yaml"));
  }
  CHECK_THROWS_WITH(convert("train.py --deepspeed other.json"), Contains("cannot read other.json"));
  CHECK(asked == std::vector<std::string>{"other.json"});
}

TEST_CASE("a key is not proposed in place of itself") {
  const std::string told =
      refusal("max_steps: 3\nper_device_train_batch_size: 2\nzero.optimization.stage: x\n", "", "a.yaml");
  CHECK_THAT(told, Contains("not understood: zero.optimization.stage") && !Contains("did you mean stage"));
}
