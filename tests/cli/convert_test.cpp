// SPDX-License-Identifier: Apache-2.0
// engine config convert, as a command.
#include <regex>

#include "harness.hpp"

using namespace cli;

TEST_CASE("config convert writes a configuration that check and plan accept", "[cli]") {
  Scratch scratch;
  scratch.write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    "zero_optimization": {"stage": 2, "contiguous_gradients": true}})");
  const std::string line =
      "deepspeed --num_gpus=1 train.py --preset tiny --seq_len 32 --max_steps 4 --train_file text.txt";
  const Result shown = engine(scratch, {"config", "convert", "ds.json", "--args", line});
  INFO(shown.err);
  REQUIRE(shown.exit == 0);
  CHECK(has(shown.out, "# Converted from ds.json and a launch line"));
  CHECK(std::regex_search(shown.out, std::regex(R"(accumulate = 4 +# from: gradient_accumulation_steps\n)")));
  CHECK(has(
      shown.err,
      "note: `zero_optimization.contiguous_gradients`: no effect on the numbers: gradients are always contiguous\n"));
  const Result written = engine(scratch, {"config", "convert", "ds.json", "--args=" + line, "-o", "new.toml"});
  CHECK(written.exit == 0);
  CHECK(written.out.empty());
  CHECK(has(written.err, "wrote new.toml; then:  engine check new.toml\n"));
  CHECK(read(scratch / "new.toml") == shown.out);
  CHECK(engine(scratch, {"config", "convert", "ds.json", "-o", "new.toml"}).exit == 2);  // not overwritten
  const Result checked = engine(scratch, {"check", "new.toml"});
  INFO(checked.err);
  CHECK(checked.exit == 0);
  CHECK(has(checked.out, "micro 2 x accumulate 4 = 8 samples"));
  // A flag that begins the launch line, and a file that it names.
  const Result flags = engine(scratch, {"config", "convert", "--args", "--deepspeed ds.json --preset tiny"});
  INFO(flags.err);
  CHECK(flags.exit == 0);
  CHECK(has(flags.out, "plugin = \"zero2\""));
}

TEST_CASE("config convert refuses what cannot mean anything", "[cli]") {
  Scratch scratch;
  const auto told = [&](const Args& args, const char* text) {
    Args all = {"config", "convert"};
    all.insert(all.end(), args.begin(), args.end());
    const Result result = engine(scratch, all);
    INFO(result.err);
    CHECK(result.exit == 2);
    CHECK(has(result.err, text));
    CHECK(result.out.empty());
  };
  scratch.write("wrong.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3})");
  scratch.write("half.json", "{\"train_batch_size\": ");
  scratch.write("large.json", std::string((1 << 20) + 1, ' '));
  told({}, "a file or --args is needed");
  told({"none.json"}, "none.json: No such file or directory");
  told({"."}, "error: .: ");
  told({"half.json"}, "half.json:1: not valid JSON");
  told({"large.json"}, "large.json is larger than 1 MiB");
  told({"wrong.json", "--args", "--num_gpus 2"},
       "error: the batch sizes contradict each other: train_batch_size = 8 needs 1 "
       "micro-batches of 3 on 2 ranks (--num_gpus), which make 6");
  told({"--args", "--deepspeed gone.json --max_steps 3"}, "gone.json: No such file or directory");
}

TEST_CASE("config convert leaves out what --ignore names", "[cli]") {
  Scratch scratch;
  scratch.write("args.yaml", "output_dir: o\nmax_steps: 3\nlabel_smoothing_factor: 0.1\nnovel: 1\nother: 2\n");
  const Result refused = engine(scratch, {"config", "convert", "args.yaml"});
  CHECK(refused.exit == 2);
  CHECK(refused.out.empty());
  CHECK(has(refused.err, "error: `label_smoothing_factor` = 0.1: the loss is cross-entropy without smoothing here"));
  CHECK(has(refused.err, "error: not understood: novel"));
  CHECK(has(refused.err, "--ignore label_smoothing_factor --ignore novel --ignore other"));
  const Result made =
      engine(scratch, {"config", "convert", "--ignore", "label_smoothing_factor", "args.yaml", "--ignore=novel,other"});
  INFO(made.err);
  CHECK(made.exit == 0);
  CHECK(has(made.out, "steps = 3"));
}

TEST_CASE("a file of another trainer in place of a configuration is pointed to config convert", "[cli]") {
  Scratch scratch;
  scratch.write("ds.json", "{\"train_batch_size\": 8}");
  scratch.write("args.yaml", "max_steps: 3\n");
  for (const char* file : {"ds.json", "args.yaml"})
    for (const char* command : {"check", "run", "plan"}) {
      const Result told = engine(scratch, {command, file});
      INFO(told.err);
      CHECK(told.exit == 2);
      CHECK(has(told.err, "engine config convert FILE"));
    }
  CHECK(has(engine(scratch, {"run", "--deepspeed", "ds.json"}).err, "engine config convert FILE"));
}

TEST_CASE("config convert starts from weights in a directory", "[cli]") {
  Scratch scratch;
  const std::string weights = std::string(ENGINE_SOURCE_DIR) + "/tests/models/hf/single";
  const Result made =
      engine(scratch, {"config", "convert", "--args", "train.py --max_steps 3 --model_name_or_path " + weights});
  INFO(made.err);
  CHECK(made.exit == 0);
  CHECK(has(made.out, "from = \"" + weights + "\""));
  CHECK_FALSE(has(made.out, "preset"));
}
