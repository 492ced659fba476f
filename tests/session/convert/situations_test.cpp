// SPDX-License-Identifier: Apache-2.0
// Runs as guides describe them: the file, the launch line, and what becomes of both.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

std::string file(int micro, int steps, int stage, const std::string& zero, const std::string& more) {
  return fmt::format(R"({{"train_micro_batch_size_per_gpu": {}, "gradient_accumulation_steps": {},
    "gradient_clipping": 1.0, "steps_per_print": 10,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 2e-5, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}}},
    "zero_optimization": {{"stage": {}{}, "overlap_comm": true, "contiguous_gradients": true,
                           "reduce_bucket_size": 2e8}}{}}})",
                     micro, steps, stage, zero, more);
}

const char* const fp16 = R"(, "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16})";
const char* const bf16 = R"(, "bf16": {"enabled": true})";
const char* const host = R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true})";
const char* const all_host =
    R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "offload_param": {"device": "cpu", "pin_memory": true})";

std::string checkpoints(int number) {
  return fmt::format(R"(, "activation_checkpointing": {{"partition_activations": false, "number_checkpoints": {}}})",
                     number);
}

struct Wanted {
  std::string plugin, preset, zero;
  int64_t micro, accumulate, length, ranks, blocks;
  std::string precision = "fp16";
};

void judge(const Converted& made, const Wanted& wanted) {
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  CHECK(config.section("model").string("plugin") == wanted.plugin);
  CHECK(config.section("model").string("preset") == wanted.preset);
  CHECK(config.section("zero").string("plugin") == wanted.zero);
  CHECK(config.section("train").integer("micro_batch") == wanted.micro);
  CHECK(config.section("train").integer("accumulate") == wanted.accumulate);
  CHECK(config.section("train").integer("sequence_length") == wanted.length);
  CHECK(made.ranks == wanted.ranks);
  if (wanted.blocks) CHECK(config.section("recompute").integer("blocks") == wanted.blocks);
  CHECK(config.section("precision").string("plugin") == wanted.precision);
}

std::string line(int ranks, const std::string& preset, int length) {
  return fmt::format(
      "deepspeed --num_gpus={} --module train --deepspeed_config ds.json --preset {} --max_seq_length {}", ranks,
      preset, length);
}

}  // namespace

TEST_CASE("convert: one card of 80 GB, Mamba with 7 billion parameters") {
  judge(converted(file(4, 4, 2, host, bf16 + checkpoints(4)), line(1, "7b_mamba", 1024)),
        {"mamba", "7b_mamba", "zero2", 4, 4, 1024, 1, 4, "bf16"});
  judge(converted(file(8, 2, 2, host, bf16 + checkpoints(2)), line(1, "7b_mamba", 1024)),
        {"mamba", "7b_mamba", "zero2", 8, 2, 1024, 1, 2, "bf16"});
  judge(converted(file(12, 1, 1, "", bf16 + checkpoints(2)), line(1, "7b_mamba", 2048)),
        {"mamba", "7b_mamba", "zero1", 12, 1, 2048, 1, 2, "bf16"});
}

TEST_CASE("convert: cards of 24 GB, stage 2 in fp16") {
  for (const int ranks : {4, 6, 8})
    for (const char* preset : {"7b_mamba", "3b_mamba", "1b_mamba"}) {
      const Converted made = converted(file(1, 8, 2, "", fp16 + checkpoints(4)), line(ranks, preset, 4096));
      judge(made, {"mamba", preset, "zero2", 1, 8, 4096, ranks, 4});
      CHECK_THAT(made.text, Contains("initial_scale_power = 16") && Contains("from: fp16.initial_scale_power"));
      CHECK_THAT(made.text, Contains("--ranks " + std::to_string(ranks)));
    }
}

TEST_CASE("convert: six cards of 32 GB, stage 3 with everything on the host") {
  const Converted made = converted(file(1, 1, 3, all_host, fp16 + checkpoints(32)), line(6, "3b_mamba_lite", 512));
  judge(made, {"mamba", "3b_mamba_lite", "zero3", 1, 1, 512, 6, 32});
  CHECK(built_config(made.text).section("offload").string("parameters") == "host");
  CHECK(built_config(made.text).section("offload").string("optimizer") == "host");
  // A batch of 48: micro-batch 1 x 8, or 4 x 2 (which DeepSpeed derives).
  judge(converted(file(1, 8, 3, all_host, std::string(fp16) + ", \"train_batch_size\": 48"), line(6, "7b_mamba", 512)),
        {"mamba", "7b_mamba", "zero3", 1, 8, 512, 6, 0});
  CHECK_THAT(
      refusal(file(4, 4, 3, all_host, std::string(fp16) + ", \"train_batch_size\": 48"), line(6, "7b_mamba", 512)),
      Contains("4 (micro-batch) x 4 (accumulation) x 6 ranks (--num_gpus) = 96, not train_batch_size = 48"));
}

TEST_CASE("convert: LLaMA on four cards of 40 GB, with WarmupDecayLR") {
  const std::string zero = std::string(all_host) + R"(, "stage3_max_live_parameters": 1e9)";
  const auto with = [&](const std::string& more) {
    return file(2, 8, 3, zero,
                fp16 + (R"(, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0,
        "warmup_max_lr": 2e-5, "warmup_num_steps": 1000)" +
                        more + "}}"));
  };
  // As the guide has it, the file lacks a key that DeepSpeed requires: what to set is written as a comment.
  const Converted open = converted(with(""), line(4, "llama-7b", 2048));
  CHECK_THAT(notes_of(open), Contains("`scheduler.params.total_num_steps` is missing"));
  CHECK_THAT(open.text, Contains("# total_num_steps = ...") && Contains("# steps = 1000"));
  const Converted made = converted(with(R"(, "total_num_steps": 10000)"), line(4, "llama-7b", 2048));
  judge(made, {"llama", "7b", "zero3", 2, 8, 2048, 4, 0});
  const Config config = built_config(made.text);
  CHECK(config.section("schedule").number("warmup_max_lr") == 2e-5);
  CHECK(config.section("schedule").string("warmup_type") == "log");
  CHECK(config.section("train").integer("steps") == 10000);
  CHECK(config.section("train").number("grad_clip") == 1.0);
}

TEST_CASE("convert: OPT from 125 million to 30 billion, by Hugging Face's arguments") {
  for (const char* size : {"125m", "350m", "1.3b", "2.7b", "6.7b", "13b", "30b"}) {
    const Converted made = converted(
        "",
        std::string("python train.py --model_name_or_path facebook/opt-") + size +
            " --per_device_train_batch_size 4 --gradient_accumulation_steps 1 --max_seq_length 128 --max_steps 1000 "
            "--gradient_checkpointing --fp16 --fp16_full_eval --output_dir out");
    INFO(made.text << notes_of(made));
    judge(made, {"opt", size, "none", 4, 1, 128, 0, 0});
    const Config config = built_config(made.text);
    CHECK(config.section("recompute").string("policy") == "full");
    CHECK(config.section("schedule").string("kind") == "linear");
    CHECK(config.section("optimizer").number("learning_rate") == 5e-5);
    CHECK_THAT(notes_of(made),
               Contains("`--fp16_full_eval`: no effect on the numbers: an evaluation has the run's number format"));
  }
}

TEST_CASE("convert: a guide's file with comments, as it stands") {
  const Converted made = converted(R"({
    "train_batch_size": 16,           # a larger batch
    "train_micro_batch_size_per_gpu": 4,  # of one card
    "gradient_accumulation_steps": 4,  # moderate

    "zero_optimization": {
        "stage": 2,                   # enough
        "offload_optimizer": {        # the optimizer alone
            "device": "cpu"
        }
        # parameters stay on the card
    },

    "activation_checkpointing": {
        "partition_activations": false,  # off
        "cpu_checkpointing": false,     # off
        "number_checkpoints": 4         # few
    }
})",
                                   R"(python train_deepspeed.py \
    --preset 7b_mamba \
    --deepspeed_config deepspeed_single.json \
    --max_seq_length 1024 \
    --save_steps 500 \
    --eval_steps 250)",
                                   "deepspeed_single.json");
  judge(made, {"mamba", "7b_mamba", "zero2", 4, 4, 1024, 1, 4, "fp32"});
  const Config config = built_config(made.text);
  CHECK(config.section("offload").string("optimizer") == "host");
  CHECK(config.section("checkpoint").integer("every") == 500);
  CHECK(config.section("train").integer("eval_every") == 250);
}

TEST_CASE("convert: LLaMA-7B with \"auto\" and without a number of steps, as it stands") {
  const Converted made = converted(R"({
  "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "weight_decay": 0.0}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 2e-5, "warmup_num_steps": 1000}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu",  "pin_memory": true}, "contiguous_gradients": true, "overlap_comm": true},
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
    "min_loss_scale": 1},
  "bf16": {"enabled": false}, "gradient_clipping": 1.0, "steps_per_print": 50})",
                                   R"(CUDA_VISIBLE_DEVICES=0,1,2,3 \
MASTER_ADDR=localhost \
deepspeed --num_gpus=4 \
--module training.run_clm \
--model_name_or_path /path/to/llama-7b \
--dataset_name wikitext \
--per_device_train_batch_size 2 \
--gradient_accumulation_steps 8 \
--deepspeed ds_config.json \
--output_dir ./output)",
                                   "ds_config.json");
  INFO(made.text << notes_of(made));
  const Config config =
      built_config(made.text, {"model.plugin=llama", "model.preset=7b", "schedule.total_num_steps=9"});
  CHECK(made.ranks == 4);
  CHECK(config.section("train").integer("micro_batch") == 2);
  CHECK(config.section("train").integer("accumulate") == 8);
  CHECK(config.section("train").number("epochs") == 3);  // Hugging Face's default
  CHECK(config.section("zero").string("plugin") == "zero3");
  CHECK(config.section("precision").string("plugin") == "fp16");
  CHECK(config.section("schedule").string("kind") == "WarmupDecayLR");
  CHECK_THAT(made.text, Contains("# total_num_steps = ..."));
}
